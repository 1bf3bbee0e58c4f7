cdef class Counter:
    cdef public long long value


cdef class Meter(Counter):
    cdef object _clock
    cdef list _marks


cdef class Histogram:
    cdef public list _last
    cdef public long long count
    cdef public double total, minimum, maximum

    cpdef record(self, double value)


cdef class Timer(Histogram):
    cdef Meter _meter
