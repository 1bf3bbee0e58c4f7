from .frames cimport Send
from .request cimport ClientRequest


cdef class CorrelationIds:
    cdef long long _following
    cpdef long long take(self)


cdef class RequestFramer:
    cdef bytes _client_id
    cdef dict _tails
    cpdef Send frame(self, ClientRequest request, body)


cpdef parse_response(ClientRequest request, payload)
