from .channel cimport Channel
from .frames cimport Send
from .request cimport ClientRequest
from .writing cimport ChannelWriter
from .wire cimport CorrelationIds, RequestFramer


cdef class RequestSender:
    cdef ChannelWriter _writer
    cdef object _selector, _metadata, _versions, _clock
    cdef public RequestFramer _framer
    cdef dict _ids, _framers
    cdef object _client_id_of
    cdef public long long request_timeout_ms, next_timeout_ms, unanswered
    cdef public object aborted

    cpdef ClientRequest request(self, str node_id, builder, callback, long long now, Channel channel)
    cpdef send(self, ClientRequest request, long long now, Channel channel=*)
