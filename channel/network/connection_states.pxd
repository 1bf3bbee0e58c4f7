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

    cpdef bint is_ready(self, str node_id, long long now) except -1
