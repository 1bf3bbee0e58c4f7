cimport cython

from .link cimport Segment
from .tcp cimport Stream, TcpConnection


cdef class Reassembler:
    cdef public object file, _summary, _most_connections, _most_held, _held, _finished, _handshakes
    cdef public dict _streams, _with_holes

    @cython.locals(stream=Stream)
    cpdef Stream in_order(self, long long time_ns, Segment segment)

    @cython.locals(sequence=cython.longlong, flags=cython.int, buffer=bytes, begin=Py_ssize_t, end=Py_ssize_t,
                   on_wire=cython.longlong, stream=Stream, events=list, length=Py_ssize_t, offset=cython.longlong)
    cpdef segment(self, long long time_ns, Segment segment)

    @cython.locals(flow=bytes, sequence=cython.longlong, acknowledged=cython.longlong, flags=cython.int)
    cpdef _unusual(self, list events, long long time_ns, Segment segment, Stream stream)

    @cython.locals(ahead=cython.longlong)
    cpdef _acknowledge(self, Stream stream, long long acknowledged, long long time_ns)
