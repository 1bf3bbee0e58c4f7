cimport cython


@cython.locals(exact=bytearray, value=cython.longlong)
cpdef long long int32_at(data, Py_ssize_t at) except? -1
cpdef put_int32(bytearray data, Py_ssize_t at, long long value)


cdef class Send:
    cdef public str destination
    cdef public object buffers, left, request
    cdef public Py_ssize_t size, remaining
    cdef public bint completed

    cpdef written(self, Py_ssize_t count)


cdef class Window:
    cdef readonly bytearray buffer
    cdef readonly object view


cdef class FrameReader:
    cdef bytearray _head, _window
    cdef object _payload, _pool, _window_view
    cdef public object into, waiting
    cdef public Py_ssize_t bytes_read
    cdef public long long limit, requested
    cdef public bint lacks_memory

    cpdef next_frame(self)

    @cython.locals(window=bytearray, size=cython.longlong)
    cpdef received(self, Py_ssize_t count)
    cpdef bint allocate(self) except -1
