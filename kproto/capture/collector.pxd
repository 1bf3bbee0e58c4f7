cimport cython

from .conversation cimport Conversation
from .link cimport Segment, segment
from .reassembly cimport Reassembler
from .tcp cimport Stream, TcpConnection


cdef class Collector:
    cdef public object _summary, _capture, _ports, _wanted, _limit, _most_held, _keeps_payloads
    cdef public object _fragments, _payloads, time_ns
    cdef public Reassembler _reassembler
    cdef public dict _conversations, _holding
    cdef public long long _held

    @cython.locals(packet=tuple, time_ns=cython.longlong, link=cython.longlong, buffer=bytes, start=Py_ssize_t,
                   stop=Py_ssize_t, on_wire=cython.longlong, count=cython.longlong, reassembler=Reassembler,
                   found=Segment, stream=Stream, offset=cython.longlong)
    cpdef packets(self, packets)

    @cython.locals(stream=Stream, offset=cython.longlong, buffer=object, begin=Py_ssize_t, end=Py_ssize_t,
                   time_ns=cython.longlong, more=Py_ssize_t)
    cpdef _stream_events(self, known, list events)

    @cython.locals(connection=TcpConnection, conversation=Conversation)
    cpdef _stream_event(self, Stream stream, long long offset, buffer, Py_ssize_t begin, Py_ssize_t end,
                        long long time_ns, bint more, list out)

    cpdef _count_held(self, Conversation conversation, list events)
