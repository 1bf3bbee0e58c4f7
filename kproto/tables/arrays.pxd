cimport cython


cdef Py_ssize_t _missing(values) except -1


@cython.locals(view="int[::1]", end=cython.longlong, at=Py_ssize_t)
cdef _offsets(values)


@cython.locals(bits=bytearray, at=Py_ssize_t)
cdef _bits(values)


cdef class RowBuffer:
    cdef public object _schema
    cdef public list _columns
    cdef public long long _bytes, _limit

    @cython.locals(columns=list, column=list, at=Py_ssize_t)
    cpdef add(self, tuple row, long long size)
