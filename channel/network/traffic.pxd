from .channel cimport Channel
from .frames cimport Send


cdef class Traffic:
    cdef object _clock
    cdef public object recorder

    cpdef read(self, Channel channel, Py_ssize_t count, payload)
    cpdef wrote(self, Channel channel, Py_ssize_t count, Send send)
