cimport cython

from .link cimport Segment, ticks_of


cdef long long _TOLD_NS

cpdef long long advance(long long sequence, long long length) except? -2
cpdef long long distance(long long sequence, long long reference) except? -2


cdef class Stream:
    cdef public TcpConnection connection
    cdef public Stream peer
    cdef public object start, far, _held
    cdef public int side
    cdef public long long next, offset, first, active_ns, finish, held_bytes, acknowledged, acknowledged_ns, hole_ns
    cdef public long long due_ns, ticks, told_ns
    cdef public Py_ssize_t _held_from
    cdef public bint seen, closed, ignored, ended_unread, is_timed

    @cython.locals(ticks=cython.longlong, passed_ns=cython.longlong, set_ns=cython.longlong)
    cpdef long long set_by(self, long long time_ns, Segment segment) except? -2

    @cython.locals(ticks=cython.longlong, passed_ms=cython.longlong)
    cpdef tell(self, long long time_ns, Segment segment)


cdef class TcpConnection:
    cdef public bytes flow
    cdef public object file
    cdef public long long opened_ns, closed_ns
    cdef public Stream client
    cdef public tuple streams
    cdef public bint opening, over
    cdef public list beginning, begun
    cpdef has_begun(self)


cdef class Reassembler:
    cdef public object file, _summary, _most_connections, _most_held, _held, _finished, _handshakes
    cdef public dict _streams, _with_holes
    cdef public list strays
    cdef public bint keeps_beginnings
    cdef public long long _beginning_bytes

    @cython.locals(stream=Stream)
    cpdef Stream in_order(self, long long time_ns, Segment segment)

    @cython.locals(sequence=cython.longlong, flags=cython.int, buffer=bytes, begin=Py_ssize_t, end=Py_ssize_t,
                   on_wire=cython.longlong, stream=Stream, events=list, length=Py_ssize_t, offset=cython.longlong)
    cpdef segment(self, long long time_ns, Segment segment)

    @cython.locals(flow=bytes, sequence=cython.longlong, acknowledged=cython.longlong, flags=cython.int)
    cpdef _unusual(self, list events, long long time_ns, Segment segment, Stream stream)

    @cython.locals(ahead=cython.longlong)
    cpdef _acknowledge(self, Stream stream, long long acknowledged, long long time_ns)
