cimport cython


cdef long long _ETHERNET, _COOKED, _COOKED_2, _IP, _IPV4, _IPV6, _TICKS
cdef int _UDP, _AUTHENTICATION, _MOST_LAYERS

cdef long long _u16(bytes buffer, Py_ssize_t at) except -1
cdef long long _u32(bytes buffer, Py_ssize_t at) except -1


cdef class Segment:
    cdef public bytes flow, buffer
    cdef public long long sequence, acknowledged, on_wire
    cdef public Py_ssize_t begin, end
    cdef public int flags


@cython.locals(found=Segment, at=Py_ssize_t, kind_at=Py_ssize_t, kind=cython.longlong, tcp=Py_ssize_t,
               begin=Py_ssize_t, end=cython.longlong, total=cython.longlong, version=cython.int, header=cython.int,
               protocol=cython.int, words=cython.int, wire_length=cython.longlong, wire_end=cython.longlong,
               layers=cython.int)
cpdef Segment segment(long long time_ns, long long link, bytes buffer, Py_ssize_t start, Py_ssize_t stop,
                      long long on_wire, fragments, summary)


@cython.locals(at=Py_ssize_t)
cpdef long long ticks_of(Segment segment) except? -2
