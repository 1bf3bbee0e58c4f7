from .frames cimport FrameReader, Send
from .request cimport InFlightRequests


cdef class Connection:
    cdef public str id
    cdef public bint checks_versions, usable, explicitly_muted
    cdef public object phase, mute_state
    cdef object _pool
    cdef public FrameReader reader
    cdef public Send outgoing
    cdef public InFlightRequests in_flight

    cpdef start(self, Send send)
    cpdef Send sent(self, Py_ssize_t count, bint pending=*)
    cpdef received(self, Py_ssize_t count)
