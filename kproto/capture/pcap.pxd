cimport cython


cdef class PcapReader:
    cdef public object _summary, _record, _damage
    cdef public tuple properties
    cdef public list _parts
    cdef public long long _size, _need, _offset, _link, _scale, _largest, _seconds

    @cython.locals(at=Py_ssize_t, size=Py_ssize_t, largest=cython.longlong, link=cython.longlong,
                   scale=cython.longlong, seconds=cython.longlong, need=cython.longlong, second=cython.longlong,
                   fraction=cython.longlong, length=cython.longlong, on_wire=cython.longlong, end=cython.longlong)
    cpdef Py_ssize_t _read(self, bytes buffer, list packets) except -1
