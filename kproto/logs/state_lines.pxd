cdef class LoggedRequest:
    cdef public object api_key, broker_id, controller_id, controller_epoch, correlation_id, deletes
    cdef public object time_ns, last_ns, error_code, broker_epoch, count
    cdef public dict topics, topic_ids
    cdef public list errors, live_brokers
    cdef public bint answered, detailed


cdef class StateLog:
    cdef object _emit, _tell, _replicas, _told, _led, _partitions, _topic_ids
    cdef dict _events, _writers, _open, _epochs, _senders, _broker_epochs, _of_brokers
    cdef set _leading
    cdef bint _tells_broker_epochs, _says_finished, _detailed
    cdef public object latest_ns
