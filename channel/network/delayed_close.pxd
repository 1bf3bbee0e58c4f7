cdef class DelayedCloses:
    cdef long long _delay_ns
    cdef dict _due_ns
