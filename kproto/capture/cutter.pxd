cimport cython

from .detection cimport FrameHeader, may_be_request, read_request_header


cdef class PendingRequest:
    cdef public object correlation_id, api_key, api_version, frame, shared
    cdef public long long held_bytes
    cdef public bint pending
    cdef public PendingRequest same_id


cdef class Matcher:
    cdef public bint _keeps_payloads
    cdef public object _pending, _wanted
    cdef public dict _oldest, _newest, _before_loss
    cdef public long long held_bytes

    cpdef PendingRequest find(self, correlation_id)

    @cython.locals(newest=PendingRequest)
    cpdef PendingRequest add(self, PendingRequest request)

    @cython.locals(oldest=PendingRequest)
    cpdef list answer(self, PendingRequest request)

    @cython.locals(request=PendingRequest)
    cpdef PendingRequest _pop(self)


cdef class RequestInStream:
    cdef public FrameHeader header
    cdef public long long offset, first_ns, last_ns
    cdef public int status
    cdef public object payload


cdef class ResponseInStream:
    cdef public PendingRequest request
    cdef public object correlation_id, payload
    cdef public long long size, offset, first_ns, last_ns
    cdef public int status


cdef class FrameCutter:
    cdef public long long skip_to, held_bytes, _at, _least, _need, _first_ns, _last_ns, _size_at
    cdef public bint searching, _unconfirmed
    cdef public object _search, _large
    cdef public list _pieces, _size_places
    cdef public bytes _size_begun

    @cython.locals(offset=cython.longlong, buffer=bytes, begin=Py_ssize_t, end=Py_ssize_t, time_ns=cython.longlong,
                   taken=cython.longlong, piece=tuple, pieces=list, found=list)
    cpdef list feed(self, list todo)

    cpdef bint passes(self, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end,
                      long long time_ns) except -1
    cpdef _keep(self, long long offset, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef _keep_large(self, large, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef _begin_frame(self, bytes buffer, Py_ssize_t begin, Py_ssize_t end, long long time_ns)
    cpdef long long _take(self, bytes data, Py_ssize_t at, Py_ssize_t end, list found) except? -2
    cpdef long long _broken(self, bytes data, list found) except? -2


cdef class RequestCutter(FrameCutter):
    cdef public object _wanted, _requests, _payloads, _tls_like
    cdef public long long _limit
    cdef public bint _fresh, _recognised, _began_otherwise, _tokens

    cpdef _give(self, FrameHeader header, payload, int status, list found)
    cpdef _accept(self, FrameHeader header)


cdef class ResponseCutter(FrameCutter):
    cdef public long long unmatched_bytes, _limit
    cdef public Matcher _pending
    cdef public PendingRequest _request
    cdef public bint _looked_up
