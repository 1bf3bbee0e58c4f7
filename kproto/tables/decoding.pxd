from .batches cimport RowBuffer


cdef class _Decoded:
    cdef public long long _limit
    cdef public bint _states
    cdef public dict _columns
    cdef public RowBuffer _heads, _brokers
    cdef public set _known_brokers

    cpdef add(self, body_id, api_key, version, direction, payload)
    cpdef _add_head(self, body_id, dict head)
