"""What waits for one thread to deliver it, and one frame out and one frame in without the interpreter's lock.

A send thread spends its life writing a request and waiting for the answer. Done in Python each of these gives up the
lock and must win it back, from all the other send threads. Here a small request is on its way by the time ``put``
returns, or when the thread asks for its next one; one thread of C moves the bytes of all (``_io.h``), and a send thread
is woken by its answer alone, when it is its turn to go on.
"""

from cython cimport final
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.stdlib cimport free, malloc

import os
from collections import deque

from channel.errors import InvalidReceive

cdef enum:
    INLINE_BUFFERS = 8
    LARGE = 65536  # from here on a request takes long to send: its own thread does it, beside the others
    RESERVED_FROM = 0x7FFFFFF8

FIRST_SASL_CORRELATION_ID = RESERVED_FROM


cdef inline void put_int32(unsigned char *at, long long value) noexcept nogil:
    at[0] = (value >> 24) & 0xFF
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF


cdef inline int get_int32(const unsigned char *at) noexcept nogil:
    return <int>((<unsigned int>at[0] << 24) | (<unsigned int>at[1] << 16) | (<unsigned int>at[2] << 8) | at[3])


@final
cdef class CorrelationIds:
    """Counts from 0 to the range reserved for SASL authenticators, then from the lowest int32 on.

    Args:
        first: Where to begin.
    """

    cdef long long following

    def __init__(self, long long first=0):
        self.following = first

    cpdef long long take(self):
        """The next one."""
        cdef long long taken = self.following
        if taken >= RESERVED_FROM:
            taken = -<long long>0x80000000
        self.following = taken + 1
        return taken


@final
cdef class Outbox:
    """Requests that wait for one thread to deliver them, oldest first, and the one that is on its way.

    Any thread puts; one takes.

    Args:
        milliseconds: Tells the time in ms.
        record: Takes how long each request waited, in ms.
    """

    cdef object items
    cdef object milliseconds
    cdef object record
    cdef bint entered
    cdef bint idles
    cdef bint ended
    # The connection it is lent.
    cdef readonly bint lent
    cdef object conversation
    cdef object metrics
    cdef dict forms
    cdef long long timeout_ms
    cdef Line line
    # The request on its way.
    cdef bint begun
    cdef tuple item
    cdef object body
    cdef tuple form
    cdef int api_key
    cdef int version
    cdef int correlation_id
    cdef bytes tail
    cdef Py_ssize_t taken
    cdef iovec *pieces
    cdef Py_buffer *views
    cdef unsigned char head[12]
    cdef iovec inline_pieces[INLINE_BUFFERS]
    cdef Py_buffer inline_views[INLINE_BUFFERS]

    def __cinit__(self):
        line_init(&self.line)
        self.pieces = self.inline_pieces
        self.views = self.inline_views

    def __init__(self, milliseconds, record):
        self.items = deque()
        self.milliseconds = milliseconds
        self.record = record
        self.forms = {}

    def __dealloc__(self):
        if not line_is_inherited(&self.line):
            if self.begun:
                line_withdraw(&self.line)
            line_detach(&self.line, False)  # nobody has said when its socket is closed: it may have been already
        self.close()

    def __len__(self):
        return len(self.items)

    # ---- for any thread

    def put(self, tuple item not None):
        """Add a request, its callback and when it came (ms)."""
        cdef bint begun = False
        if line_is_inherited(&self.line):
            self.forget()
        self.items.append(item)
        if not self.idles or self.begun:
            return  # its thread will see by itself
        try:
            begun = self.lent and self.begin(item, True)
        finally:
            if begun:
                line_submit(&self.line)
            elif self.idles:
                line_wake(&self.line)
        if begun:
            self.record(self.milliseconds() - <object>item[2])

    def end(self):
        """Let ``get`` return at once, now and ever after; what waits stays."""
        self.ended = True
        line_wake(&self.line)

    def drain(self):
        """Take out all that waits, oldest first."""
        cdef list left = []
        while self.items:
            left.append(self.items.popleft())
        return left

    # ---- for its own

    def get(self):
        """Wait for a request, and for its answer if it could be sent on the connection that the conversation lent.

        Returns:
            The item; the answer, None if it was not sent or not answered; and the error if it was sent in vain. None
            at the end.
        """
        cdef tuple item
        if line_is_inherited(&self.line):
            self.forget()
        while True:
            if self.begun:
                if self.ended:
                    return self.conclude(InterruptedError("woken before the answer came"))
                if self.line.answered:
                    return self.conclude(None)
                self.wait()
            elif self.ended:
                line_end_turn(&self.line)
                return None
            elif self.items:
                item = self.items[0]
                self.record(self.milliseconds() - <object>item[2])
                if self.lent and self.begin(item, False):
                    if not self.line.sends_itself:
                        line_submit(&self.line)
                else:
                    self.items.popleft()
                    self.take_back()
                    line_end_turn(&self.line)
                    return item, None, None
            else:
                self.idles = True
                try:
                    self.wait()
                finally:
                    self.idles = False

    def lend(self, int fd, object conversation, long long timeout_ms, long long limit=-1, object metrics=None):
        """A connection to use until it fails or is taken back: connected, non-blocking, nothing on its way.

        Args:
            fd: The socket. Take it back before it is closed.
            conversation: Knows how requests are framed, answers read, and what went wrong.
            timeout_ms: How long a request may take.
            limit: Largest answer in bytes, -1 for none.
            metrics: Counts what passes; None if nobody asks.

        Raises:
            OSError: The system cannot watch it.
        """
        cdef int error = 0
        self.take_back()
        if not self.entered:
            with nogil:
                error = line_enter()
            if error:
                raise OSError(error, os.strerror(error))
            self.entered = True
        if line_attach(&self.line, fd) < 0:
            raise OSError(errno, os.strerror(errno))
        self.lent = True
        self.conversation = conversation
        self.metrics = metrics
        self.timeout_ms = timeout_ms
        self.line.limit = limit

    def take_back(self):
        """Use the connection no more."""
        if line_is_inherited(&self.line):
            self.forget()
        if self.begun and not self.line.answered:
            line_withdraw(&self.line)
            self.line.outcome = LINE_CLOSED
            self.line.answered = 1
        self.lent = False
        line_detach(&self.line, True)

    def close(self):
        """Give everything back, once the thread has ended. Whatever is put still waits to be drained."""
        self.ended = True
        self.take_back()
        if self.begun:
            if self.items is not None:
                self.items.appendleft(self.item)
            self.release()
        line_end_turn(&self.line)
        if self.entered:
            self.entered = False
            with nogil:
                line_leave()

    # ---- the inside

    cdef int wait(self) except -1:
        """Until something has changed: the answer, a request, the end."""
        cdef bint undisturbed
        with nogil:
            undisturbed = line_attend(&self.line)
        if not undisturbed:
            PyErr_CheckSignals()
        return 0

    cdef int forget(self) except -1:
        """In a child: the thread, the connection and what was on its way are the parent's."""
        line_forget(&self.line)
        self.entered = self.lent = self.idles = False
        self.release()
        return 0

    cdef bint begin(self, tuple item, bint from_put):
        """Make an item the one on its way, without sending any of it; False if it must go by way of the client."""
        cdef object request = item[0], body
        cdef int api_key, version
        cdef tuple form
        cdef Py_ssize_t count, views = 0, i
        cdef long long size
        cdef Py_buffer *view
        try:
            api_key = request.api_key
            version = request.latest_version
            body = request.build(version)
            form = self.forms.get(api_key << 16 | version)
            if form is None:
                form = self.forms[api_key << 16 | version] = self.conversation.form(api_key, version)
            size = 8 + len(<bytes>form[1])
            count = 2 + len(body)
            for piece in body:
                views += type(piece) is not bytes
        except Exception:
            return False  # the client will say what is wrong
        # From here on no other thread of the interpreter runs.
        if from_put and (
            not self.idles or self.begun or not self.lent or self.ended or not self.items or self.items[0] is not item
        ):
            return False
        try:
            if count > INLINE_BUFFERS:
                self.pieces = <iovec *>malloc(count * sizeof(iovec))
            if views > INLINE_BUFFERS:
                self.views = <Py_buffer *>malloc(views * sizeof(Py_buffer))
            if self.pieces == NULL or self.views == NULL:
                raise MemoryError
            for i in range(count - 2):
                piece = body[i]
                if type(piece) is bytes:
                    self.pieces[i + 2].iov_base = PyBytes_AS_STRING(piece)
                    self.pieces[i + 2].iov_len = len(<bytes>piece)
                else:
                    view = &self.views[self.taken]
                    PyObject_GetBuffer(piece, view, PyBUF_SIMPLE)
                    self.taken += 1
                    self.pieces[i + 2].iov_base = view.buf
                    self.pieces[i + 2].iov_len = view.len
                size += self.pieces[i + 2].iov_len
        except Exception:
            self.release()
            return False
        except BaseException:
            self.release()
            raise
        if size > 0x7FFFFFFF or (from_put and size >= LARGE):
            self.release()
            return False
        self.item = item
        self.body = body
        self.form = form
        self.tail = form[1]
        self.api_key = api_key
        self.version = version
        self.correlation_id = (<CorrelationIds>form[0]).take()
        put_int32(self.head, size)
        put_int32(self.head + 4, (<long long>api_key << 16) | (version & 0xFFFF))
        put_int32(self.head + 8, self.correlation_id)
        self.pieces[0].iov_base = self.head
        self.pieces[0].iov_len = 12
        self.pieces[1].iov_base = PyBytes_AS_STRING(self.tail)
        self.pieces[1].iov_len = len(self.tail)
        self.line.next = self.pieces
        self.line.left = count
        self.line.sends_itself = size >= LARGE
        self.line.sent = self.line.received = 0
        self.line.deadline = -1
        if self.timeout_ms < (<long long>1 << 43):
            self.line.deadline = line_now() + self.timeout_ms * 1000000
        self.items.popleft()
        self.begun = True
        return True

    cdef tuple conclude(self, object error):
        """How the request on its way has ended; the thread is free for the next one."""
        cdef tuple item = self.item
        cdef Line *line = &self.line
        cdef int outcome = line.outcome, skip = 5 if self.form[2] else 4
        cdef bint whole = False, plain, more
        cdef bytes answer
        if error is not None:
            line_withdraw(line)
        elif outcome == LINE_STALE:
            self.release()
            self.take_back()
            line_end_turn(line)
            return item, None, None
        try:
            if error is not None:
                raise error
            if outcome != LINE_DONE:
                raise self.reason(outcome)
            whole = True
            more = line.have > line.size + 4
            plain = (
                line.size >= skip
                and get_int32(<unsigned char *>line.data + 4) == self.correlation_id
                and (skip == 4 or line.data[8] == 0)
            )
            if not plain:
                skip = 0
            answer = PyBytes_FromStringAndSize(line.data + 4 + skip, line.size - skip)
            if plain and not more:
                body = self.form[3](self.api_key, self.version, answer)
            else:
                if more:
                    self.take_back()
                body = self.conversation.unusual(item[0], self.correlation_id, answer, plain, more)
            return item, body, None
        except Exception as e:
            self.take_back()
            return item, None, self.conversation.failed(item[0], e)
        finally:
            if self.metrics is not None:
                self.count(whole)
            self.release()

    cdef int count(self, bint whole) except -1:
        """What has passed. Here and not in Python: it is done for every request."""
        cdef object metrics = self.metrics
        metrics.io.value += 2
        metrics.outgoing.value += self.line.sent
        metrics.incoming.value += self.line.received
        if whole:
            metrics.requests.value += 1
            metrics.responses.value += 1
        if self.line.sent > <long long>metrics.request_size_max:
            metrics.request_size_max = self.line.sent
        return 0

    cdef object reason(self, int outcome):
        cdef Line *line = &self.line
        if outcome == LINE_CLOSED:
            return EOFError("the peer closed the connection before it had answered")
        if outcome == LINE_TIMED_OUT:
            return TimeoutError(f"no answer within {self.timeout_ms} ms")
        if outcome == LINE_BAD_SIZE:
            limit = f"; the limit is {line.limit}" if line.size >= 0 else ""
            return InvalidReceive(f"the peer announced a frame of {line.size} bytes{limit}")
        if outcome == LINE_NO_MEMORY:
            return MemoryError(f"no room for an answer of {line.size} bytes")
        return OSError(line.error, os.strerror(line.error))

    cdef void release(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.taken):
            PyBuffer_Release(&self.views[i])
        if self.views != self.inline_views:
            free(self.views)
            self.views = self.inline_views
        if self.pieces != self.inline_pieces:
            free(self.pieces)
            self.pieces = self.inline_pieces
        self.taken = 0
        self.item = self.body = None
        self.begun = False
        line_clear(&self.line)
