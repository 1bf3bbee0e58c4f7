cimport cython


cdef class RowBuffer:
    cdef public object _schema
    cdef public list _columns
    cdef public long long _bytes, _limit

    @cython.locals(columns=list, column=list, at=Py_ssize_t)
    cpdef add(self, tuple row, long long size)
