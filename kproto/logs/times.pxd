cdef class LogClock:
    cdef public bint assumed
    cdef object _reading, _zone, _day, _told_day
    cdef dict _offsets
    cdef bytes _minute
    cdef long long _minute_ns
    cpdef long long kafka_ns(self, bytes line) except -2
