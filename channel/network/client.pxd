from .connection_states cimport ClusterConnectionStates
from .nodes cimport NodeConnections
from .request cimport ClientRequest, ClientResponse
from .request_outcomes cimport RequestOutcomes
from .request_sender cimport RequestSender
from .selector cimport Selector


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
