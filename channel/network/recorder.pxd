cdef class _Stream:
    cdef public bytearray held
    cdef public Py_ssize_t wanted, rest
    cdef public bint is_hidden


cdef class SecretMask:
    cdef _Stream _sent, _received
    cdef bint _has_handshake, _answers_tokens
    cdef dict _answers
    cdef object _latest, _before_token

    cpdef bint passes(self, buffers, Py_ssize_t size, bint is_request) except -1
    cpdef _request_passes(self, data, Py_ssize_t at)
    cpdef _response_passes(self, data, Py_ssize_t at)


cdef class _Direction:
    cdef bytes _first, _middle, _last
    cdef long long _sum
    cdef bint _v4
    cdef public long long sequence

    cpdef bytes headers(self, long long length, long long acknowledged, int flags)
    cpdef advance(self, long long length)


cdef class _Conversation:
    cdef public _Direction sent, received
    cdef public SecretMask mask
    cdef public str requests
    cdef public long long first
    cdef public bint is_one_of_two


cdef Py_ssize_t _size(buffers) except -1
cdef list _packet(_Direction way, long long acknowledged, long long time_ns, int flags, pieces=*, long long length=*)
