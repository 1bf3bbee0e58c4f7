"""Sends of small frames that keep the interpreter's lock.

A non-blocking send of a small frame ends at once. ``socket.sendmsg`` would hand the lock to another thread meanwhile,
and then wait to get it back: with a controller's thread and a send thread, two hand-overs for each request.
"""

import os

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memset

cdef extern from "<sys/socket.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len

    cdef struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen

    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    int MSG_DONTWAIT, MSG_NOSIGNAL

cdef enum:
    MOST_BUFFERS = 8  # a request has two to four
    MOST_BYTES = 16384  # copying more takes as long as a hand-over


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
    cdef Py_ssize_t taken = 0, size = 0, sent, each
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
