"""From bytes to Python: text, kept tags, and the exceptions that a noted fault becomes."""

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t, Py_UCS4)
    void *PyUnicode_DATA(object) noexcept

cdef str replaced_text(rp p, int64_t n):
    """Ill-formed UTF-8 as Java reads it."""
    cdef uint8_t *q = <uint8_t *>malloc(3 * n)
    if q == NULL:
        raise MemoryError
    try:
        return PyUnicode_DecodeUTF8(<const char *>q, kp_replace_utf8(q, p, n), NULL)
    finally:
        free(q)


cdef inline str text(rp p, int64_t n):
    """A string's bytes as text; n is -1 for null."""
    cdef object s
    if n < 0:
        return None
    if kp_is_ascii(p, n):
        if n == 0:
            return ""
        s = PyUnicode_New(n, 127)
        memcpy(PyUnicode_DATA(s), p, n)
        return <str>s
    if kp_bad_utf8(p, n) != NULL:
        return replaced_text(p, n)
    return PyUnicode_DecodeUTF8(<const char *>p, n, NULL)


cdef inline bytes kept(rp begin, rp end):
    """The unknown tagged fields of a struct, kept as they stood on the wire; None where there are none."""
    return None if begin == NULL else <bytes>begin[:end - begin]


cdef rp read_kept(kp_reader *r, rp p, Tagged m) except? NULL:
    """A struct's tagged section, where no tag is known."""
    cdef rp begin = NULL, end = NULL
    p = kp_tags(r, p, r.end, &begin, &end)
    if p != NULL and begin != NULL:
        m.tags = kept(begin, end)
    return p


cdef rp read_error_code(kp_reader *r, int16_t *code) noexcept:
    """Read the error code that every response begins with."""
    if r.end - r.base < 2:
        return kp_fault_group(r, r.base, "error_code:2")
    code[0] = kp_i16(r.base)
    return r.base + 2


cdef str fault_path(kp_reader *r):
    cdef int i
    cdef list parts = []
    for i in range(r.depth - 1, -1, -1):
        parts.append(f"{r.outer[i].decode()}[{r.index[i]}]" if r.index[i] >= 0 else r.outer[i].decode())
    if r.field_length:
        parts.append(r.field[:r.field_length].decode())
    return ".".join(parts)


cdef object fault_error(kp_reader *r, object api_key, object version):
    """The DecodeError for the fault that a reader has noted."""
    cdef kp_code code = r.code
    cdef int64_t left = r.end - r.at
    kind = Malformed
    if code == KP_SHORT:
        kind, need = Truncated, f"{r.value} byte{'' if r.value == 1 else 's'}"
        reason = f"the input ends early: {need} needed, {left} left"
    elif code == KP_SHORT_STRING:
        kind, reason = Truncated, f"a string of {r.value} bytes, but only {left} are left"
    elif code == KP_SHORT_ARRAY:
        kind, reason = Truncated, f"an array of {r.value} elements, but only {left} bytes are left"
    elif code == KP_SHORT_TAG:
        kind, reason = Truncated, f"a tagged field of {r.value} bytes, but only {left} are left"
    elif code == KP_VARINT_LONG:
        reason = "a varint of more than five bytes"
    elif code == KP_NULL:
        reason = f"null (length {r.value}) where it may not be"
    elif code == KP_STRING_LONG:
        reason = f"a string of {r.value} bytes, more than {KP_MAX_STRING}"
    elif code == KP_TAG_NOT_VALID:
        reason = f"tag {r.value} is not valid in version {version}"
    elif code == KP_TAG_NEGATIVE:
        reason = f"a tagged field of size {r.value}"
    elif code == KP_STRICT_TRAILING:
        reason = f"{r.value} bytes after the end of the message"
    elif code == KP_STRICT_UTF8:
        reason = f"ill-formed UTF-8 at byte 0x{r.value:02x}"
    elif code == KP_STRICT_VARINT:
        reason = f"an overlong varint for {r.value}"
    elif code == KP_STRICT_BOOL:
        reason = f"a bool of {r.value}, not 0 or 1"
    elif code == KP_STRICT_TAG_ORDER:
        reason = f"tag {r.value} stands twice or out of order, or is above {0x7fffffff}"
    elif code == KP_STRICT_TAG_SIZE:
        reason = f"a tagged field of size {r.value}, not 1"
    elif code == KP_STRICT_NULL:
        reason = f"null written as length {r.value}, not -1"
    elif code == KP_STRICT_TAG_COUNT:
        reason = f"a tagged section of {r.value} fields"
    elif code == KP_FULL:
        return ValueError("the batch has reached its limit of 2**31 rows or ids: finish it first")
    else:
        return MemoryError()
    return kind(reason, r.at - r.base, fault_path(r), api_key, version)
