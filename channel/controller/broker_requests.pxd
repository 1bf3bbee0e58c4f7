from channel.metrics cimport Timer
from channel.network.request cimport ClientRequest, ClientResponse


cdef class QueueItem:
    cdef public object request, callback
    cdef public long long enqueue_time_ms


cdef class BrokerRequests:
    cdef public object node, thread
    cdef public bint closed
    cdef public long long attempt_ends_ms
    cdef str _node_id
    cdef QueueItem _current
    cdef object _client, _clock, _on_undeliverable, _lock, _queue
    cdef Timer _queue_time
    cdef public bint _busy
    cdef bint _sent_before
    cdef ClientRequest _request

    cpdef bint put(self, QueueItem item) except -1
    cpdef _take(self, QueueItem item, long long waited_ms)
    cpdef _send(self, long long now)
    cpdef deliver(self)
    cpdef _answered(self, ClientResponse response)
    cpdef _send_next(self)
