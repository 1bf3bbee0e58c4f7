cimport cython


cdef class LoggedRequest:
    cdef public object api_key, broker_id, controller_id, controller_epoch, correlation_id, deletes
    cdef public object time_ns, last_ns, error_code, broker_epoch, count
    cdef public dict topics, topic_ids
    cdef public list errors, live_brokers
    cdef public bint answered, detailed, of_kraft, is_short
    cpdef bint is_one(self, object api_key, object controller_id, object correlation_id) except -1
    cpdef add(self, bytes topic, state)
    cpdef mark(self)


cdef class StateLog:
    cdef object _emit, _tell, _replicas, _told, _led, _partitions, _topic_ids
    cdef dict _events, _writers, _open, _epochs, _senders, _newest, _broker_epochs, _of_brokers
    cdef set _leading, _listing, _torn
    cdef bint _tells_broker_epochs, _says_finished, _detailed
    cdef list _closed
    cdef object _latest_ns, _stray
    cdef public bint is_shuffled, goes_back

    @cython.locals(request=LoggedRequest)
    cdef LoggedRequest _request(
        self, object api_key, object broker, object controller, object epoch, object correlation, object time_ns
    )

    cdef bint _decided(self, controller, epoch, bytes rest, time_ns) except -1
    cdef bint _happened(self, controller, bytes begin, bytes rest, time_ns) except -1

    @cython.locals(request=LoggedRequest)
    cdef _decision(self, controller, epoch, time_ns, list live, bytes topic=*, state=*)

    @cython.locals(kind=cython.int, begin=Py_ssize_t, end=Py_ssize_t)
    cpdef bint line(self, bytes text, Py_ssize_t at, object time_ns) except -1


cdef str _name(bytes topic)
cdef list _ids(bytes text)
cdef tuple _topic_partition(bytes text)
cdef _published(number, controller_epoch, leader, leader_epoch, list isr, partition_epoch, list replicas, offline=*)
