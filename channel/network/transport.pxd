cdef class PlaintextTransport:
    cdef public object _sock
    cdef public bint _connected
    cdef public tuple local, remote, cipher_information
    cdef int _fd

    cpdef read_into(self, buffer)
    cpdef write(self, buffers)
