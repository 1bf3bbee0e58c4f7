from .detection cimport FrameHeader
from .matcher cimport PendingRequest


cdef class RequestInStream:
    cdef public FrameHeader header
    cdef public long long offset, first_ns, last_ns
    cdef public int status
    cdef public object payload


cdef class ResponseInStream:
    cdef public PendingRequest request
    cdef public object correlation_id, payload
    cdef public long long size, offset, first_ns, last_ns
    cdef public int status
