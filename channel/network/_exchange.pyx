"""One frame out and one frame in over a plain socket, with the interpreter's lock given up once.

A send thread spends its life writing a request and waiting for the answer. Done in Python each of these gives up the
lock and must win it back, from all the other send threads: two hand-overs a request, and more if the answer comes in
pieces. Here both are one call.
"""

from cython cimport final
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

import os

from channel.errors import InvalidReceive
from kproto.errors import OutOfRange

cdef extern from "<sys/socket.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int fd, const msghdr *message, int flags)
    ssize_t recv(int fd, void *buffer, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int MSG_PEEK

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long count, int timeout)
    short POLLIN
    short POLLOUT

cdef bint MANY_CORES = (os.cpu_count() or 1) > 1

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    int CLOCK_MONOTONIC

cdef enum:
    INLINE_BUFFERS = 8
    IOV_MOST = 1024
    SMALL = 1024
    FIRST_GROWTH = 262144

cdef enum Outcome:
    DONE
    STALE
    CLOSED
    FAILED
    TIMED_OUT
    WOKEN
    BAD_SIZE
    SIGNALLED
    NO_MEMORY


class StaleConnection(Exception):
    """The peer had ended the connection, or said something unasked, before anything was sent: nothing is lost."""


cdef enum:
    SPIN_NS = 20000  # about what falling asleep and being woken costs

cdef int in_flight = 0  # exchanges of this process that wait for their answer; changed with the lock held


cdef struct Out:
    iovec *at
    Py_ssize_t count


cdef struct In:
    char *data
    long long capacity
    long long have
    long long size
    char small[SMALL]


cdef inline long long now_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <long long>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef inline long long now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <long long>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline void put_int32(unsigned char *at, long long value) noexcept nogil:
    at[0] = (value >> 24) & 0xFF
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF


cdef inline int get_int32(const unsigned char *at) noexcept nogil:
    return <int>((<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3])


@final
cdef class Exchange:
    """A connected, non-blocking socket with nothing on its way.

    Args:
        fd: The socket.
        wake_fd: A descriptor that ends the wait once it is readable; it is not read.
        limit: Largest answer in bytes, -1 for none.

    Attributes:
        sent, received: Bytes that have passed, lengths included, also those of an exchange that failed.
    """

    cdef int fd
    cdef int wake_fd
    cdef long long limit
    cdef readonly long long sent
    cdef readonly long long received

    def __init__(self, int fd, int wake_fd, long long limit=-1):
        self.fd = fd
        self.wake_fd = wake_fd
        self.limit = limit

    def __call__(
        self,
        short api_key,
        short version,
        int correlation_id,
        bytes header_tail,
        bint tagged,
        object body,
        long long timeout_ms,
    ):
        """Send a request and wait for the frame that answers it.

        Args:
            api_key, version, correlation_id: The request header's first fields.
            header_tail: What stands between these and the body.
            tagged: Whether the response header has tagged fields.
            body: The body in pieces, which are sent one after the other and never joined.
            timeout_ms: How long all of it may take.

        Returns:
            The answer's body, whether it is that alone, and whether bytes follow the answer. It is the whole payload
            if its header is not just this correlation id and, if ``tagged``, no tagged fields. If bytes
            follow, the peer says things unasked: the connection must not be used again, nor after an error.

        Raises:
            OutOfRange: The request is too large for a frame; nothing was sent.
            StaleConnection: The connection was at its end already; nothing was sent.
            EOFError: The peer ended it.
            OSError: It broke.
            TimeoutError: No whole answer in time.
            InterruptedError: ``wake_fd`` is readable.
            InvalidReceive: The answer's length is negative or above the limit.
        """
        global in_flight
        cdef Py_ssize_t count = 2 + len(body), taken = 0, i
        cdef unsigned char head[12]
        cdef iovec inline_pieces[INLINE_BUFFERS]
        cdef Py_buffer inline_views[INLINE_BUFFERS]
        cdef iovec *pieces = inline_pieces
        cdef Py_buffer *views = inline_views
        cdef Out out
        cdef In answer
        cdef Outcome outcome
        cdef int error
        cdef long long deadline, size = 8 + len(header_tail), skip
        if count > INLINE_BUFFERS:
            pieces = <iovec *>malloc(count * sizeof(iovec))
            views = <Py_buffer *>malloc(count * sizeof(Py_buffer))
            if pieces == NULL or views == NULL:
                free(pieces)
                free(views)
                raise MemoryError
        answer.data = answer.small
        answer.capacity = SMALL
        answer.have = 0
        answer.size = -1
        try:
            for i in range(count - 2):
                PyObject_GetBuffer(body[i], &views[i], PyBUF_SIMPLE)
                taken += 1
                pieces[i + 2].iov_base = views[i].buf
                pieces[i + 2].iov_len = views[i].len
                size += views[i].len
            if size > 0x7FFFFFFF:
                raise OutOfRange(f"a request of {size} bytes; a frame holds {0x7FFFFFFF}")
            put_int32(head, size)
            put_int32(head + 4, (<long long>api_key << 16) | (version & 0xFFFF))
            put_int32(head + 8, correlation_id)
            pieces[0].iov_base = head
            pieces[0].iov_len = 12
            pieces[1].iov_base = PyBytes_AS_STRING(header_tail)
            pieces[1].iov_len = len(header_tail)
            out.at = pieces
            out.count = count
            deadline = -1
            if timeout_ms < (<long long>1 << 52):
                deadline = now_ms() + timeout_ms
            in_flight += 1
            with nogil:
                outcome = self.is_stale()
                if outcome == DONE:
                    outcome = self.run(&out, &answer, deadline)
                error = errno
            in_flight -= 1
            while outcome == SIGNALLED:
                PyErr_CheckSignals()
                with nogil:
                    outcome = self.run(&out, &answer, deadline)
                    error = errno
            self.received += answer.have
            if outcome == DONE:
                skip = 5 if tagged else 4
                if (
                    answer.size < skip
                    or get_int32(<unsigned char *>answer.data + 4) != correlation_id
                    or (tagged and answer.data[8] != 0)
                ):
                    skip = 0
                return (
                    PyBytes_FromStringAndSize(answer.data + 4 + skip, answer.size - skip),
                    skip != 0,
                    answer.have > answer.size + 4,
                )
            if outcome == STALE:
                raise StaleConnection("the peer had closed the connection")
            if outcome == CLOSED:
                raise EOFError("the peer closed the connection before it had answered")
            if outcome == TIMED_OUT:
                raise TimeoutError(f"no answer within {timeout_ms} ms")
            if outcome == WOKEN:
                raise InterruptedError("woken before the answer came")
            if outcome == BAD_SIZE:
                limit = f"; the limit is {self.limit}" if answer.size >= 0 else ""
                raise InvalidReceive(f"the peer announced a frame of {answer.size} bytes{limit}")
            if outcome == NO_MEMORY:
                raise MemoryError
            raise OSError(error, os.strerror(error))
        finally:
            for i in range(taken):
                PyBuffer_Release(&views[i])
            if views != inline_views:
                free(pieces)
                free(views)
            if answer.data != answer.small:
                free(answer.data)

    cdef Outcome is_stale(self) noexcept nogil:
        """An idle connection has nothing to read: anything else is its end, or a frame that nobody asked for."""
        cdef char byte
        if recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 and errno == EAGAIN:
            return DONE
        return STALE

    cdef Outcome run(self, Out *out, In *answer, long long deadline) noexcept nogil:
        cdef msghdr message
        cdef ssize_t n
        cdef Outcome outcome
        cdef long long spin_until = 0
        memset(&message, 0, sizeof(message))
        while out.count:
            message.msg_iov = out.at
            message.msg_iovlen = <size_t>out.count if out.count < IOV_MOST else IOV_MOST
            n = sendmsg(self.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
            if n >= 0:
                self.sent += n
                while out.count and <size_t>n >= out.at.iov_len:
                    n -= out.at.iov_len
                    out.at += 1
                    out.count -= 1
                if n:
                    out.at.iov_base = <char *>out.at.iov_base + n
                    out.at.iov_len -= n
            elif errno == EAGAIN:
                outcome = self.wait(POLLOUT, deadline)
                if outcome != DONE:
                    return outcome
            else:
                return SIGNALLED if errno == EINTR else FAILED
        if in_flight == 1 and MANY_CORES:
            # Nobody else needs the core: an answer that comes at once costs no sleep and no wake-up.
            spin_until = now_ns() + SPIN_NS
        while True:
            if spin_until == 0 or now_ns() >= spin_until or in_flight > 1:
                spin_until = 0
                outcome = self.wait(POLLIN, deadline)
                if outcome != DONE:
                    return outcome
            n = recv(self.fd, answer.data + answer.have, answer.capacity - answer.have, MSG_DONTWAIT)
            if n == 0:
                return CLOSED
            if n < 0:
                if errno == EAGAIN:
                    continue
                return SIGNALLED if errno == EINTR else FAILED
            answer.have += n
            outcome = self.advance(answer)
            if outcome == DONE and answer.size >= 0 and answer.have >= answer.size + 4:
                return DONE
            if outcome != DONE:
                return outcome

    cdef Outcome advance(self, In *answer) noexcept nogil:
        """Read the length once it is there; make room for the rest, never more than has come already and that again."""
        cdef long long capacity
        cdef char *data
        if answer.size < 0:
            if answer.have < 4:
                return DONE
            answer.size = get_int32(<unsigned char *>answer.data)
            if answer.size < 0 or 0 <= self.limit < answer.size:
                return BAD_SIZE
        if answer.have < answer.capacity or answer.have >= answer.size + 4:
            return DONE
        capacity = answer.capacity * 2 if answer.capacity > SMALL else FIRST_GROWTH
        if capacity > answer.size + 4:
            capacity = answer.size + 4
        if answer.data == answer.small:
            data = <char *>malloc(capacity)
            if data != NULL:
                memcpy(data, answer.small, answer.have)
        else:
            data = <char *>realloc(answer.data, capacity)
        if data == NULL:
            return NO_MEMORY
        answer.data = data
        answer.capacity = capacity
        return DONE

    cdef Outcome wait(self, short events, long long deadline) noexcept nogil:
        cdef pollfd fds[2]
        cdef long long left = -1
        cdef int n
        fds[0].fd = self.fd
        fds[0].events = events
        fds[1].fd = self.wake_fd
        fds[1].events = POLLIN
        while True:
            if deadline >= 0:
                left = deadline - now_ms()
                if left < 0:
                    left = 0
                if left > 0x7FFFFFFF:
                    left = 0x7FFFFFFF
            n = poll(fds, 2, <int>left)
            if n > 0:
                return WOKEN if fds[1].revents else DONE
            if n < 0:
                return SIGNALLED if errno == EINTR else FAILED
            if deadline >= 0 and now_ms() >= deadline:
                return TIMED_OUT
