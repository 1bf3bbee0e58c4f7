from .channel cimport Channel
from .connection cimport Connection
from .connection_states cimport ClusterConnectionStates
from .in_flight cimport InFlightRequests
from .selector cimport Selector


cdef class NodeConnections:
    cdef public ClusterConnectionStates states
    cdef Selector _selector
    cdef object _metadata, _resolution, _random, _lookups
    cdef Py_ssize_t _max_in_flight
    cdef bint _checks_versions, _starting
    cdef int _send_buffer, _receive_buffer

    cpdef Channel sendable(self, str node_id, long long now)
    cpdef go_on(self, long long now)
