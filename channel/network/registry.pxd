from .channel cimport Channel
from .expiry cimport ChannelExpiry
from .reading cimport ChannelReader
from .traffic cimport Traffic


cdef class ChannelRegistry:
    cdef object _poller
    cdef ChannelReader _reader
    cdef Traffic _traffic
    cdef ChannelExpiry _expiry
    cdef public dict open, closing, disconnected
    cdef public list immediate, connected, prepared

    cpdef clear(self, long long now)
