cimport cython


@cython.locals(available=Py_ssize_t, size=cython.longlong, length=cython.int, body_at=Py_ssize_t)
cpdef read_request_header(data, Py_ssize_t at, Py_ssize_t end)
