cimport cython

from .cutter cimport FrameCutter
from .matcher cimport Matcher, PendingRequest


cdef class ResponseCutter(FrameCutter):
    cdef public long long unmatched_bytes, _limit
    cdef public Matcher _pending
    cdef public PendingRequest _request
    cdef public bint _looked_up
