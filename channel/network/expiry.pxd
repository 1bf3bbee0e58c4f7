cdef class DelayedCloses:
    cdef long long _delay_ns
    cdef dict _due_ns


cdef class ChannelExpiry:
    cdef public object idle, stalled
    cdef public DelayedCloses failed_authentications, opening

    cpdef bint limits_any(self) except -1
    cpdef wait_ms(self, timeout_ms, long long now_ns)
