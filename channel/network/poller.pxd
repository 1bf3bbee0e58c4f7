from .channel cimport Channel


cdef class Poller:
    cdef public object _system, changed
    cdef object _changed
    cdef public dict channels, callbacks

    cpdef update(self, Channel channel)
    cpdef list wait(self, timeout_ms)
