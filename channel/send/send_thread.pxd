cimport cython

from channel.metrics cimport Timer
from channel.network.request cimport ClientRequest, ClientResponse


cdef class QueueItem:
    cdef public object request, callback
    cdef public long long enqueue_time_ms


cdef class CallbackTimes:
    cdef public long long count, total_ns, longest_ns


cdef class BrokerRequests:
    cdef public object node, thread
    cdef public bint closed
    cdef public long long attempt_ends_ms
    cdef str _node_id
    cdef QueueItem _current
    cdef CallbackTimes _callbacks
    cdef object _client, _nanoseconds, _on_answer, _on_undeliverable, _lock, _queue
    cdef Timer _queue_time
    cdef public bint _busy
    cdef bint _sent_before
    cdef ClientRequest _request

    cpdef bint put(self, QueueItem item) except -1
    cdef _take(self, QueueItem item, long long waited_ms)

    @cython.locals(item=QueueItem)
    cdef _send(self, long long now)
    cpdef deliver(self)
    cpdef _answered(self, ClientResponse response)

    @cython.locals(times=CallbackTimes, began=cython.longlong, ended=cython.longlong)
    cdef long long _call_back(self, QueueItem item, int api_key, body) except? -1

    @cython.locals(now=cython.longlong, item=QueueItem)
    cdef _send_next(self, long long now_ns)
