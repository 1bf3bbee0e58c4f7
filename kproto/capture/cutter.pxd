cimport cython


cdef class FrameCutter:
    cdef public long long skip_to, held_bytes, _at, _least, _need, _first_ns, _last_ns, _size_at
    cdef public bint searching, _unconfirmed
    cdef public object _search, _large
    cdef public list _pieces, _size_places
    cdef public bytes _size_begun

    @cython.locals(offset=cython.longlong, buffer=bytes, begin=Py_ssize_t, end=Py_ssize_t, time_ns=cython.longlong,
                   taken=cython.longlong, piece=tuple, pieces=list, found=list)
    cpdef list feed(self, list todo)

    cpdef bint passes(self, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end,
                      long long time_ns) except -1
    cpdef _keep(self, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef _keep_large(self, large, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef _begin_frame(self, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef long long _take(self, bytes data, Py_ssize_t at, Py_ssize_t end, list found) except? -2
    cpdef long long _broken(self, bytes data, list found) except? -2
