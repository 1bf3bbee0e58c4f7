cimport cython

from .channel cimport Channel, KafkaConnection, Receive
from .frames cimport FrameReader, Send
from .selector_metrics cimport PollTimes, SelectorMetrics


cdef class Deadlines:
    cdef long long _delay_ns, _next_ns
    cdef object _due_ns

    @cython.locals(due_ns=cython.longlong)
    cpdef add(self, Channel channel, long long now_ns)
    cpdef long long remaining_ms(self, long long now_ns) except -1


cdef class ChannelExpiry:
    cdef public Deadlines idle, stalled, failed_authentications, opening

    @cython.locals(limit=Deadlines)
    cpdef long long wait_ms(self, long long timeout_ms, long long now_ns) except -1
    cpdef look(self, Channel channel, long long now_ns)


cdef class Poller:
    cdef public object _system, changed
    cdef object _changed
    cdef public dict channels, callbacks

    cpdef update(self, Channel channel)
    cpdef list wait(self, timeout_ms)


cdef class Traffic:
    cdef object _clock
    cdef public object recorder, thread

    @cython.locals(metrics=SelectorMetrics)
    cpdef read(self, Channel channel, Py_ssize_t count, payload)

    @cython.locals(metrics=SelectorMetrics)
    cpdef wrote(self, Channel channel, Py_ssize_t count, Send send)


cdef class ChannelReader:
    cdef bint _recorded
    cdef object _clock
    cdef ChannelExpiry _expiry
    cdef Traffic _traffic
    cdef public object pool
    cdef public list completed
    cdef public dict buffered
    cdef public bint out_of_memory, progressed

    @cython.locals(receive=Receive)
    cpdef clear(self)

    @cython.locals(reader=FrameReader)
    cpdef read(self, Channel channel, long long now)


cdef class ChannelWriter:
    cdef object _clock, _interest_changed, _wakeup
    cdef Traffic _traffic
    cdef public list started, completed
    cdef public object broken

    @cython.locals(connection=KafkaConnection)
    cpdef write_at_once(self, Channel channel, Send send)
    cpdef bint write(self, Channel channel) except -1


cdef class Selector:
    cdef object _clock, _metrics, _metrics_of, _dial, _tell, _window
    cdef public Py_ssize_t _max_receive_size
    cdef Traffic _traffic
    cdef public object _builder, _poller, _waker, _computed
    cdef public PollTimes _polls
    cdef public ChannelExpiry _expiry
    cdef public ChannelReader _reader
    cdef readonly ChannelWriter writer
    cdef public dict channels, closing, disconnected
    cdef public list _immediate, connected, prepared, completed_sends, completed_receives
    cdef public long long polled_ns

    cpdef send(self, Send send)
    cpdef write_now(self)
    cpdef _write(self, Channel channel)
    cpdef clear(self)

    @cython.locals(reader=ChannelReader, polls=PollTimes, before=cython.longlong, now=cython.longlong)
    @cython.locals(channel=Channel, channels=dict)
    cpdef poll(self, timeout_ms, bint for_sends=*)

    @cython.locals(connection=KafkaConnection)
    cpdef _process(self, Channel channel, int mask, long long now)
