cimport cython


cpdef long long advance(long long sequence, long long length) except? -2
cpdef long long distance(long long sequence, long long reference) except? -2


cdef class Stream:
    cdef public TcpConnection connection
    cdef public Stream peer
    cdef public object start, far, _held
    cdef public int side
    cdef public long long next, offset, active_ns, finish, held_bytes, acknowledged, acknowledged_ns, hole_ns
    cdef public long long due_ns
    cdef public Py_ssize_t _held_from
    cdef public bint seen, closed, ignored, ended_unread


cdef class TcpConnection:
    cdef public bytes flow
    cdef public object file
    cdef public long long opened_ns, closed_ns
    cdef public Stream client
    cdef public tuple streams
    cdef public bint opening, over
