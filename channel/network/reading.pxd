from .channel cimport Channel
from .frames cimport FrameReader
from .traffic cimport Traffic


cdef class ChannelReader:
    cdef bint _recorded
    cdef object _clock, _stalled
    cdef Traffic _traffic
    cdef public object pool
    cdef public list completed
    cdef public dict buffered
    cdef public bint out_of_memory, progressed

    cpdef read(self, Channel channel, long long now)
