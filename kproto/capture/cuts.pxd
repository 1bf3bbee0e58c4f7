from .detection cimport Header
from .matcher cimport PendingRequest


cdef class RequestCut:
    cdef public Header header
    cdef public long long offset, first_ns, last_ns
    cdef public int status
    cdef public object payload


cdef class ResponseCut:
    cdef public PendingRequest request
    cdef public object correlation_id, payload
    cdef public long long size, offset, first_ns, last_ns
    cdef public int status
