from .channel cimport Channel, Receive
from .connection cimport Connection
from .connection_states cimport ClusterConnectionStates
from .frames cimport Send
from .request cimport ClientRequest, ClientResponse, CorrelationIds, InFlightRequests, RequestFramer, parse_response
from .selector cimport ChannelWriter, Selector


cdef class NodeConnections:
    cdef public ClusterConnectionStates states
    cdef Selector _selector
    cdef object _metadata, _resolution, _random, _lookups
    cdef Py_ssize_t _max_in_flight
    cdef bint _checks_versions, _starting
    cdef int _send_buffer, _receive_buffer

    cpdef Channel sendable(self, str node_id, long long now)
    cpdef go_on(self, long long now)


cdef class RequestSender:
    cdef ChannelWriter _writer
    cdef object _selector, _metadata, _versions, _clock
    cdef public RequestFramer _framer
    cdef dict _ids, _framers
    cdef object _client_id_of
    cdef public long long request_timeout_ms, next_timeout_ms, unanswered
    cdef public object aborted

    cpdef ClientRequest request(self, str node_id, builder, callback, long long now, Channel channel)
    cpdef send(self, ClientRequest request, long long now, Channel channel=*)


cdef class RequestOutcomes:
    cdef Selector _selector
    cdef object _metadata, _versions
    cdef ClusterConnectionStates _states
    cdef NodeConnections _nodes
    cdef RequestSender _sender
    cdef bint _discover_versions
    cdef public list newly_ready

    cpdef complete_receive(self, list responses, Receive receive, long long now)


cdef class NetworkClient:
    cdef public object client_id, clock, next_correlation_id, new_request
    cdef public list newly_ready
    cdef public Selector _selector
    cdef public RequestSender _sender
    cdef ClusterConnectionStates _states
    cdef NodeConnections _nodes
    cdef RequestOutcomes _outcomes
    cdef object _metadata, _versions, _on_invalid_answer, _phase
    cdef bint _discover_versions, _pipelined

    cpdef ClientRequest request(self, str node_id, builder, callback, now=*)
    cpdef list poll(self, timeout_ms)
    cpdef _complete(self, list responses)
