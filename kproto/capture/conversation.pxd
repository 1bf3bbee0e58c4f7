cimport cython

from .cuts cimport RequestInStream, ResponseInStream
from .cutter cimport FrameCutter
from .detection cimport FrameHeader
from .matcher cimport Matcher, PendingRequest
from .model cimport Frame


cdef class Conversation:
    cdef public object connection, client, protocol, file, _senders, _opened_ns, _wanted, _limit, _capture, _summary
    cdef public object _ended
    cdef public bint ending, _handshake, _has_wanted, _request_hole, _has_data
    cdef public long long faults, held, _unmatched_bytes, _first_ns, _second_ns
    cdef public Matcher _matcher
    cdef public list _unmatched, _cutters, _partial_starts
    cdef public set _noted

    @cython.locals(cutter=FrameCutter, held=cython.longlong)
    cpdef bint passes(self, int side, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end,
                      long long time_ns) except -1

    cpdef _cut(self, int side, FrameCutter cutter, list todo, list events)
    cpdef _handle(self, int side, cut, list events)

    @cython.locals(header=FrameHeader, frame=Frame)
    cpdef _request(self, int side, RequestInStream cut, list events)

    @cython.locals(frame=Frame, request=PendingRequest, passed_by=PendingRequest)
    cpdef _response(self, ResponseInStream cut, list events)

    @cython.locals(oldest=PendingRequest)
    cpdef _add(self, PendingRequest request, list events)

    @cython.locals(asked=Frame)
    cpdef _join(self, PendingRequest request, Frame response, list events)

    @cython.locals(first=FrameCutter, second=FrameCutter)
    cpdef _count_held(self)
