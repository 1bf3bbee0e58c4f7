from .channel cimport Channel
from .connection cimport Connection
from .frames cimport Send
from .traffic cimport Traffic


cdef class ChannelWriter:
    cdef object _clock, _interest_changed, _wakeup
    cdef Traffic _traffic
    cdef public list started, completed
    cdef public object broken

    cpdef write_at_once(self, Channel channel, Send send)
    cpdef bint write(self, Channel channel) except -1
