from channel.metrics cimport Counter, Histogram, Meter


cdef class PollTimes:
    cdef public object clock
    cdef public long long began_ns, io_ns, io_wait_ns
    cdef public Meter selects


cdef class SelectorMetrics:
    cdef object _metrics
    cdef dict _tags, _counts
    cdef public str group
    cdef list _names
    cdef public PollTimes polls
    cdef public long long connections, reads, writes, request_size_max
    cdef Meter _io
    cdef public Meter closed, created, authenticated, reauthenticated, not_authenticated, not_reauthenticated
    cdef public Meter outgoing, incoming, requests, responses
    cdef public long long without_renewal
    cdef public Histogram renewals, throttles
    cdef public Counter expired
