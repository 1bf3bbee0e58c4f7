cdef class _Streams:
    cdef public object connection, request, response
    cdef public bint is_partial


cdef class LogReader:
    cdef public str file
    cdef public object time_ns
    cdef object _summary, _capture, _wanted, _clock, _streams, _lines, _unwrapper, _states, _decisions
    cdef object _controller_epoch, _held
    cdef list _logged
    cdef bint _has_requests
