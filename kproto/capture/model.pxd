cdef class Frame:
    cdef public object connection, direction, status, content, api_key, api_version, client_id
    cdef public object correlation_id, file, request, unmatched_reason
    cdef public object sequence
    cdef public long long offset, time_ns, time_last_ns, length
    cdef public Py_ssize_t body_at
