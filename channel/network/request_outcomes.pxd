from .channel cimport Channel, Receive
from .connection_states cimport ClusterConnectionStates
from .in_flight cimport InFlightRequests
from .nodes cimport NodeConnections
from .request_sender cimport RequestSender
from .request cimport ClientRequest, ClientResponse
from .wire cimport parse_response
from .selector cimport Selector


cdef class RequestOutcomes:
    cdef Selector _selector
    cdef object _metadata, _versions
    cdef ClusterConnectionStates _states
    cdef NodeConnections _nodes
    cdef RequestSender _sender
    cdef bint _discover_versions
    cdef public list newly_ready

    cpdef complete_receive(self, list responses, Receive receive, long long now)
