"""From Python to bytes in one pass: each value is checked just before its bytes are written.

From the first byte to the last no Python code runs, but to raise an error that ends the writing, and nothing that the
collector watches is made: another thread or a finalizer could change the message in between.
"""


cdef extern from "_cython/text.h":
    int64_t kp_text_size(object) noexcept
    uint8_t *kp_put_text(uint8_t *, object) noexcept


cdef extern from "_cython/writer.h":
    ctypedef struct kp_writer:
        uint8_t *q
        uint8_t *end
        uint8_t *start
        PyObject *out
        int64_t tail
        PyObject *name
        int64_t name_at, name_size
    void kp_begin(kp_writer *) noexcept
    int kp_reserve(kp_writer *, int64_t) except -1
    int kp_add16(kp_writer *, int16_t) except -1
    int kp_add32(kp_writer *, int32_t) except -1
    int kp_add_count(kp_writer *, int64_t, bint) except -1
    int kp_add_bytes(kp_writer *, const void *, int64_t) except -1
    uint8_t *kp_reserve_at(kp_writer *, uint8_t *, int64_t) except NULL
    uint8_t *kp_put_same_name(const kp_writer *, uint8_t *) noexcept
    object kp_finish(kp_writer *)


cdef bytes write(object message, part kind, int version):
    """Write one message or header."""
    cdef kp_writer w
    kp_begin(&w)
    try:
        write_part(&w, message, kind, version)
        return <bytes>kp_finish(&w)
    finally:
        Py_XDECREF(w.out)


cdef int write_part(kp_writer *w, object message, part kind, int version) except -1:
    if kind == REQUEST_HEADER:
        return write_request_header(w, <RequestHeader>message, version)
    if kind == RESPONSE_HEADER:
        return write_response_header(w, <ResponseHeader>message, version)
    if kind == REQUEST:
        return write_request(w, <ControlRequest>message, version)
    if type(message) is LeaderAndIsrResponse:
        return lisr_write_response(w, <LeaderAndIsrResponse>message, version)
    if type(message) is StopReplicaResponse:
        return sr_write_response(w, <StopReplicaResponse>message, version)
    return umr_write_response(w, <UpdateMetadataResponse>message, version)


cdef int put_text(kp_writer *w, str s, bint flexible, str field, bint nullable=False) except -1:
    """Write a string with its length."""
    cdef int64_t n
    if s is None:
        if not nullable:
            raise EncodeError("null where it may not be", field)
        return kp_add_count(w, -1, True) if flexible else kp_add16(w, -1)
    n = kp_text_size(s)
    if n > KP_MAX_STRING:
        raise OutOfRange(f"a string of {n} bytes, more than {KP_MAX_STRING}", field)
    kp_reserve(w, n + 5)
    if flexible:
        w.q = kp_put_count(w.q, n, True)
    else:
        kp_put16(w.q, <int16_t>n)
        w.q += 2
    w.q = kp_put_text(w.q, s)
    return 0


cdef inline uint8_t *put_name(kp_writer *w, uint8_t *q, PyObject *s, bint flexible, int64_t more) except NULL:
    """Write a topic's name, most often that of the row before, and reserve this number of bytes behind it.

    The name is borrowed: to count references to the same str for each row would take longer than all else.
    """
    if s == w.name:
        return kp_put_same_name(w, kp_reserve_at(w, q, w.name_size + more))
    w.q = q
    w.name_at = q - w.start
    put_text(w, <str>s, flexible, "topic_name")
    w.name = s
    w.name_size = w.q - w.start - w.name_at
    return kp_reserve_at(w, w.q, more)


cdef int put_unread(kp_writer *w, Unread u, bint flexible) except -1:
    """Write a list that is still bytes."""
    kp_add_count(w, u.count, flexible)
    return kp_add_bytes(w, u.at, u.end - u.at)


cdef inline int64_t unread_size(Unread u) noexcept:
    return 0 if u is None else u.end - u.at + 5


cdef bytes new_bytes(int64_t size):
    """Bytes still to be filled."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    kp_use_large_pages(PyBytes_AS_STRING(out), size)
    return out


cdef int wrong(object value, type expected) except -1:
    raise EncodeError(f"expected {expected.__name__}, got {type(value).__name__}")


cdef inline Py_ssize_t size_of(list values) noexcept:
    return 0 if values is None else PyList_GET_SIZE(values)
