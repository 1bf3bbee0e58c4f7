cimport cython
from cpython.array cimport array
from kproto.logs.state_lines cimport LoggedRequest, StateLog
from kproto.logs.times cimport LogClock


cdef class _Streams:
    cdef public object connection, request, response
    cdef public bint is_partial


cdef class SeenLines:
    cdef array _keys
    cdef bytearray _known
    cdef list _times
    cdef long long _latest_ns, _last
    cdef Py_ssize_t _next
    cdef bint _is_behind

    @cython.locals(
        key="long long", keys=array, at=Py_ssize_t, count=Py_ssize_t,
        known=bytearray, place=Py_ssize_t, bit="unsigned char"
    )
    cpdef bint is_copy(self, bytes text, long long time_ns) except -1
    cpdef pass_over(self)

    @cython.locals(keys="long long[::1]", begin=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t)
    cdef Py_ssize_t _find(self, long long key, long long time_ns) except -2


cdef class LogReader:
    cdef public str file
    cdef public object time_ns, summary
    cdef object _capture, _wanted, _streams, _lines, _unwrapper, _numbered_ns
    cdef object _controller_epoch, _held
    cdef SeenLines _seen
    cdef LogClock _clock
    cdef StateLog _states
    cdef bytes _stamp
    cdef long long _stamp_ns
    cdef list _logged, _waiting
    cdef set _numbers
    cdef object _waiting_ns
    cdef long long _waiting_bytes
    cdef long _rises
    cdef bint _has_requests, _is_ordered

    @cython.locals(line=bytes)
    cdef _take(self, lines, list events)

    @cython.locals(at=Py_ssize_t)
    cdef bint _plain(self, bytes line, offset, length, list events) except -1

    @cython.locals(stamp=bytes)
    cdef bint _plain_state(self, bytes line, Py_ssize_t at, offset, length) except -1

    @cython.locals(request=LoggedRequest, streams=_Streams)
    cdef _give_logged(self, list events)
    cdef _number(self, LoggedRequest request)
    cdef _connection(self, name, tuple ends, time_ns)
    cdef _pair(self, _Streams streams, tuple times, tuple names, tuple asked, tuple answered, str missing, list events)
    cdef _frame(self, _Streams streams, str direction, time_ns, tuple half, tuple names)


cdef bint _ends_with_logger(bytes line) except -1
cdef bint _is_thrown(bytes line) except -1
