cdef class InFlightRequests:
    cdef str _node_id
    cdef public object requests
    cpdef bint can_send_more(self, Py_ssize_t limit) except -1
