cimport cython

from .cutter cimport FrameCutter
from .detection cimport FrameHeader, may_be_request, read_request_header


cdef class RequestCutter(FrameCutter):
    cdef public object _wanted, _requests, _payloads, _tls_like
    cdef public long long _limit
    cdef public bint _fresh, _recognised, _began_otherwise, _tokens

    cpdef _give(self, FrameHeader header, payload, int status, list found)
    cpdef _accept(self, FrameHeader header)
