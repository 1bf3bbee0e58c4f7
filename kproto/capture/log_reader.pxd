cdef class _Streams:
    cdef public object connection, request, response
    cdef public bint is_partial


cdef class LogReader:
    cdef public str file
    cdef public object time_ns
    cdef object _summary, _capture, _wanted, _clock, _streams, _lines, _unwrapper, _states, _decisions
    cdef object _controller_epoch, _held
    cdef list _logged, _waiting
    cdef object _waiting_ns, _last_line, _last_message
    cdef long long _waiting_bytes
    cdef long _rises
    cdef bint _has_requests, _is_ordered
