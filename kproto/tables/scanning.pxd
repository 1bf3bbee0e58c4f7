cimport cython

from .arrays cimport RowBuffer


cdef class _Way:
    cdef readonly object capture, conn_id, flow, direction


cdef class ScanRows(RowBuffer):
    cdef public bint _every_payload
    cdef public dict _given, _given_before, _ways
    cdef public object _captures

    cpdef _Way _way(self, frame)
    cpdef bint is_earliest(self, bytes body_id, time_ns) except -1

    @cython.locals(way=_Way, is_request=bint, size=cython.longlong)
    cpdef add_frame(self, frame)
