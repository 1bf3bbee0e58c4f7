cimport cython


cdef class FrameHeader:
    cdef public object api_key, api_version, correlation_id, client_id
    cdef public long long size
    cdef public Py_ssize_t body_at
    cdef public int sender


@cython.locals(available=Py_ssize_t, size=cython.longlong, length=cython.int, body_at=Py_ssize_t)
cpdef read_request_header(data, Py_ssize_t at, Py_ssize_t end)

cpdef bint may_be_request(FrameHeader header, long long limit) except -1
