from .channel cimport Channel
from .connection cimport Connection
from .expiry cimport ChannelExpiry
from .frames cimport Send
from .reading cimport ChannelReader
from .registry cimport ChannelRegistry
from .selector_metrics cimport PollTimes
from .writing cimport ChannelWriter


cdef class Selector:
    cdef object _clock, _metrics, _opener
    cdef public object _factory, _poller, _waker, _computed
    cdef public PollTimes _polls
    cdef public ChannelExpiry _expiry
    cdef public ChannelRegistry _registry
    cdef public ChannelReader _reader
    cdef readonly ChannelWriter writer
    cdef public dict channels, disconnected
    cdef public list connected, prepared, completed_sends, completed_receives
    cdef public long long polled_ns

    cpdef send(self, Send send)
    cpdef write_now(self)
    cpdef _write(self, Channel channel)
    cpdef clear(self)
    cpdef _process(self, Channel channel, int mask, long long now)
