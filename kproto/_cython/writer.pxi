"""From Python to bytes: the size of everything first, then one ``bytes`` that is filled in place.

From the first size to the last byte no Python code runs and nothing that the collector watches is made: another thread
or a finalizer could change the message in between.
"""


cdef extern from "_cython/text.h":
    int64_t kp_text_size(object) noexcept
    uint8_t *kp_put_text(uint8_t *, object) noexcept


cdef int64_t text_size(str s, bint flexible, str field, bint nullable=False) except -1:
    """What a string takes on the wire, its length included."""
    cdef int64_t n
    if s is None:
        if not nullable:
            raise EncodeError("null where it may not be", field)
        return 1 if flexible else 2
    n = kp_text_size(s)
    if n > KP_MAX_STRING:
        raise OutOfRange(f"a string of {n} bytes, more than {KP_MAX_STRING}", field)
    return n + (kp_varint_size(<uint32_t>n + 1) if flexible else 2)


cdef uint8_t *put_text(uint8_t *q, str s, bint flexible) noexcept:
    """Write a string that ``text_size`` has looked at."""
    cdef int64_t n
    if s is None:
        if flexible:
            q[0] = 0
            return q + 1
        kp_put16(q, -1)
        return q + 2
    n = kp_text_size(s)
    if flexible:
        q = kp_put_varint(q, <uint32_t>n + 1)
    else:
        kp_put16(q, <int16_t>n)
        q += 2
    return kp_put_text(q, s)


cdef inline int64_t count_size(int64_t n, bint flexible) noexcept:
    return kp_varint_size(<uint32_t>n + 1) if flexible else 4


cdef inline uint8_t *put_row_tags(uint8_t *q, Block owner) noexcept:
    """A row's tagged section in a flexible version, nearly always the empty one."""
    if owner is None or owner.tags is None:
        q[0] = 0
        return q + 1
    return put_tags(q, owner.tags, True)


cdef bytes new_bytes(int64_t size):
    """Bytes still to be filled."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    kp_use_large_pages(PyBytes_AS_STRING(out), size)
    return out


cdef int wrong(object value, str expected, str field, Py_ssize_t i) except -1:
    raise TypeError(f"{field}[{i}]: expected {expected}, got {type(value).__name__}")


cdef inline Py_ssize_t size_of(list values) noexcept:
    return 0 if values is None else PyList_GET_SIZE(values)
