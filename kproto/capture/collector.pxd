cimport cython

from .cutter cimport FrameCutter, Matcher, PendingRequest, RequestInStream, ResponseInStream
from .detection cimport FrameHeader
from .link cimport Segment, segment, ticks_of
from .model cimport Frame
from .reassembly cimport Reassembler, Stream, TcpConnection


cdef class Conversation:
    cdef public object connection, client, protocol, file, _senders
    cdef public object _wanted, _limit, _capture, _summary
    cdef public TcpConnection _tcp
    cdef public object _ended
    cdef public bint ending, _handshake, _is_new, _has_wanted, _request_hole, _has_data, _answers_fit
    cdef public long long held, _unmatched_bytes, _first_ns, _second_ns
    cdef public Matcher _matcher
    cdef public list _unmatched, _cutters, _partial_starts, _doubtful
    cdef public set _noted

    @cython.locals(cutter=FrameCutter, held=cython.longlong)
    cpdef bint passes(self, int side, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end,
                      long long time_ns) except -1

    cpdef _cut(self, int side, FrameCutter cutter, list todo, list events)
    cpdef _handle(self, int side, cut, list events)

    @cython.locals(header=FrameHeader, frame=Frame)
    cpdef _request(self, int side, RequestInStream cut, list events, bint is_sure=*)

    @cython.locals(frame=Frame, request=PendingRequest, passed_by=PendingRequest)
    cpdef _response(self, ResponseInStream cut, list events)

    @cython.locals(oldest=PendingRequest)
    cpdef _add(self, PendingRequest request, list events)

    @cython.locals(asked=Frame)
    cpdef _join(self, PendingRequest request, Frame response, list events)

    @cython.locals(first=FrameCutter, second=FrameCutter)
    cpdef _count_held(self)


cdef class Collector:
    cdef public object _summary, _capture, _ports, _wanted, _limit, _most_held, _keeps_payloads
    cdef public object _fragments, _payloads, time_ns
    cdef public Reassembler _reassembler
    cdef public dict _conversations, _holding, _beginnings, _begun
    cdef public long long _held, _newest_ns, behind_ns

    @cython.locals(packet=tuple, time_ns=cython.longlong, link=cython.longlong, buffer=bytes, start=Py_ssize_t,
                   stop=Py_ssize_t, on_wire=cython.longlong, count=cython.longlong,
                   found=Segment, newest_ns=cython.longlong, behind_ns=cython.longlong, ahead_ns=cython.longlong,
                   set_ns=cython.longlong, least_ns=cython.longlong, waiting=list, told=dict)
    cpdef packets(self, packets)

    @cython.locals(stream=Stream, offset=cython.longlong, reassembler=Reassembler)
    cdef _segment(self, long long time_ns, Segment found, list events)

    @cython.locals(stream=Stream, set_ns=cython.longlong)
    cpdef long long _set_by(self, long long time_ns, Segment found, long long newest_ns, dict told) except? -2

    @cython.locals(stream=Stream, offset=cython.longlong, buffer=object, begin=Py_ssize_t, end=Py_ssize_t,
                   time_ns=cython.longlong, more=Py_ssize_t)
    cpdef _stream_events(self, known, list events)

    @cython.locals(connection=TcpConnection, conversation=Conversation)
    cpdef _stream_event(self, Stream stream, long long offset, buffer, Py_ssize_t begin, Py_ssize_t end,
                        long long time_ns, bint more, list out)

    cpdef _count_held(self, Conversation conversation, list events)
