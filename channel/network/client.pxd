cimport cython

from .channel cimport Channel, KafkaConnection, Receive
from .frames cimport Send
from .request cimport ClientRequest, ClientResponse, CorrelationIds, InFlightRequests, RequestFramer, parse_response
from .selector cimport ChannelWriter, Selector


cdef class _NodeState:
    cdef public str host
    cdef public object state, addresses, attempt, authentication_error, last_address
    cdef public long long failed_attempts, failed_connects, last_attempt, next_address, reconnect_backoff, setup_timeout
    cdef public long long throttled_until


cdef class ClusterConnectionStates:
    cdef object _reconnect, _setup
    cdef dict _nodes
    cdef public set connecting_nodes
    cdef object _earliest_timeout

    @cython.locals(node=_NodeState)
    cpdef bint is_ready(self, str node_id, long long now) except -1


cdef class NetworkClient:
    cdef public object client_id, clock
    cdef readonly bint active
    cdef public list newly_ready
    cdef public Selector _selector
    cdef public RequestFramer _framer
    cdef ChannelWriter _writer
    cdef ClusterConnectionStates _states
    cdef object _metadata, _versions, _resolution, _random, _lookups, _client_id_of, _aborted
    cdef dict _ids, _framers
    cdef bint _is_closed, _is_resolving, _discover_versions
    cdef int _send_buffer, _receive_buffer
    cdef Py_ssize_t _max_in_flight
    cdef long long _request_timeout_ms, _next_timeout_ms, _one_way

    @cython.locals(ids=CorrelationIds)
    cpdef next_correlation_id(self, str node_id)

    @cython.locals(channel=Channel, made=ClientRequest)
    cpdef ClientRequest request(self, str node_id, builder, callback, now=*)

    @cython.locals(send=Send, framer=RequestFramer)
    cdef _send(self, ClientRequest request, long long now, Channel channel)

    @cython.locals(channel=Channel, connection=KafkaConnection, in_flight=InFlightRequests)
    cdef Channel _sendable(self, str node_id, long long now)

    @cython.locals(selector=Selector, states=ClusterConnectionStates, now=cython.longlong, receive=Receive)
    cpdef list poll(self, timeout_ms)

    @cython.locals(response=ClientResponse)
    cdef _complete(self, list responses)

    @cython.locals(channel=Channel, in_flight=InFlightRequests, request=ClientRequest, send=Send)
    cdef _complete_receive(self, list responses, Receive receive, long long now)
