cimport cython

from .frames cimport Send, int32_at, put_int32


cdef class ClientRequest:
    cdef public str destination
    cdef public object builder, callback
    cdef public int api_key, version
    cdef public long long correlation_id, created_ms, sent_ms, timeout_ms, throttle_ms
    cdef public bint expects_response, internal, passed
    cdef public Send send


cdef class ClientResponse:
    cdef public ClientRequest request
    cdef public long long received_ms
    cdef public object body, version_mismatch, authentication_error, error
    cdef public bint disconnected, timed_out


cdef class CorrelationIds:
    cdef long long _next
    cpdef long long take(self)


cdef class RequestFramer:
    cdef bytes _client_id
    cdef dict _heads

    @cython.locals(head=bytearray, size=cython.longlong, kind=cython.int)
    cpdef Send frame(self, ClientRequest request, body)


cdef dict _readers


@cython.locals(api_key=cython.int, version=cython.int, expected=cython.longlong, received=cython.longlong)
cpdef parse_response(ClientRequest request, payload)


cdef class InFlightRequests:
    cdef public object requests
    cpdef bint can_send_more(self, Py_ssize_t limit) except -1
