"""Sends and receives of small frames that keep the interpreter's lock.

A non-blocking call that moves a small frame ends at once. The methods of ``socket`` would hand the lock to another
thread meanwhile, and then wait to get it back: with a controller's thread and a send thread, two hand-overs for each
call.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memcpy, memset

cdef extern from "<sys/socket.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t send(int fd, const void *bytes, size_t size, int flags)
    ssize_t recv(int fd, void *bytes, size_t size, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    MOST_BUFFERS = 8  # a request has two to four
    MOST_BYTES = 16384  # copying more takes as long as a hand-over
    MOST_JOINED = 1024  # copying so few takes less time than describing several buffers to the system
    MOST_READ = 65536  # the size of the window that connections share


def send_small(int fd, buffers):
    """Send as much of the buffers as the socket takes now, if they are few and small.

    Returns:
        The number of bytes; 0 if the socket takes none now; -1 if the buffers are too many or too large.

    Raises:
        OSError: The connection is gone.
    """
    cdef Py_buffer views[MOST_BUFFERS]
    cdef iovec vectors[MOST_BUFFERS]
    cdef msghdr message
    cdef char joined[MOST_JOINED]
    cdef Py_ssize_t taken = 0, size = 0, at = 0, sent, each
    cdef int error
    try:
        for buffer in buffers:
            if taken == MOST_BUFFERS:
                return -1
            PyObject_GetBuffer(buffer, &views[taken], PyBUF_SIMPLE)
            vectors[taken].iov_base = views[taken].buf
            vectors[taken].iov_len = views[taken].len
            size += views[taken].len
            taken += 1
        if size > MOST_BYTES:
            return -1
        if size <= MOST_JOINED:
            for each in range(taken):
                memcpy(joined + at, views[each].buf, views[each].len)
                at += views[each].len
            sent = send(fd, joined, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = vectors
            message.msg_iovlen = taken
            sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
        error = errno
    finally:
        for each in range(taken):
            PyBuffer_Release(&views[each])
    if sent >= 0:
        return sent
    if error == EAGAIN or error == EINTR:
        return 0
    raise OSError(error, os.strerror(error))


def receive_small(int fd, buffer):
    """Read the bytes that have arrived into a buffer, unless it is large.

    Returns:
        The number of bytes; 0 if there are none now; -1 if the buffer is too large.

    Raises:
        EOFError: The peer will send no more.
        OSError: The connection is gone.
    """
    cdef Py_buffer view
    cdef ssize_t received
    cdef int error
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    if not 0 < view.len <= MOST_READ:
        PyBuffer_Release(&view)
        return -1
    received = recv(fd, view.buf, view.len, MSG_DONTWAIT)
    error = errno
    PyBuffer_Release(&view)
    if received > 0:
        return received
    if not received:
        raise EOFError("the peer has closed the connection")
    if error == EAGAIN or error == EINTR:
        return 0
    raise OSError(error, os.strerror(error))
