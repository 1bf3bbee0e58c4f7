cimport cython


cdef class Lines:
    cdef public object offset
    cdef list _parts, _soft
    cdef object _held, _decoder
    cdef bint _too_long, _begun, _has_zeros, _is_quoted
    cdef bytes _last
