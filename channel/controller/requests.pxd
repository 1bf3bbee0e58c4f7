cdef class ControlRequest:
    cdef public int api_key, latest_version, oldest_version
    cdef public object broker_epoch, controller_epoch


cdef class SingleRequest(ControlRequest):
    cdef object _message, _shared
    cdef tuple _body

    cpdef build(self, int version)


cdef class SharedRequest(ControlRequest):
    cdef tuple _pieces

    cpdef build(self, int version)
