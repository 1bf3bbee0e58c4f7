cimport cython

from .frames cimport FrameReader, Send
from .request cimport InFlightRequests
from .selector_metrics cimport SelectorMetrics


cdef class KafkaConnection:
    cdef public str id
    cdef public bint usable, muted, explicitly_muted
    cdef public object phase
    cdef public object pool
    cdef public FrameReader reader
    cdef public Send outgoing
    cdef public InFlightRequests in_flight

    cpdef start(self, Send send)

    @cython.locals(send=Send)
    cpdef Send sent(self, Py_ssize_t count, bint pending=*)
    cpdef received(self, Py_ssize_t count)


cdef class Channel:
    cdef public str id
    cdef public KafkaConnection connection
    cdef public object transport, authenticator, lock, ended, authentication_error
    cdef public object client_information, cipher_information
    cdef public SelectorMetrics metrics
    cdef public list unanswered
    cdef public int fd, registered
    cdef public Py_ssize_t awaited
    cdef int _wanted
    cdef public bint has_completed_receive, connected, broken, closed

    @cython.locals(connection=KafkaConnection, send=Send)
    cpdef tuple write(self)

    @cython.locals(connection=KafkaConnection, reader=FrameReader)
    cpdef tuple read(self)


cdef class Receive:
    cdef public Channel channel
    cdef public object payload
    cdef object _pool
