cimport cython


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
