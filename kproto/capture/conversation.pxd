cimport cython

from .cutter cimport FrameCutter
from .matcher cimport Matcher, PendingRequest


cdef class Conversation:
    cdef public object connection, client, protocol, file, _senders, _opened_ns, _wanted, _limit, _capture, _summary
    cdef public object _ended
    cdef public bint ending, _handshake, _has_wanted, _request_hole, _has_data
    cdef public long long held, _unmatched_bytes
    cdef public Matcher _matcher
    cdef public list _unmatched, _cutters

    @cython.locals(cutter=FrameCutter, held=cython.longlong)
    cpdef bint passes(self, int side, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end,
                      long long time_ns) except -1

    @cython.locals(first=FrameCutter, second=FrameCutter)
    cpdef _count_held(self)
