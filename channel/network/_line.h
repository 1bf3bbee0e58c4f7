/* A connection with one request on its way: what is left of it to send, and how far its answer has come. */
#ifndef KPROTO_CHANNEL_LINE_H
#define KPROTO_CHANNEL_LINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

enum { LINE_SMALL = 1024, LINE_FIRST_GROWTH = 262144, LINE_IOV_MOST = 1024 };
enum { LINE_HELPING = 262144 }; /* after so many bytes of one answer the others are looked at */

enum { LINE_DONE, LINE_AGAIN, LINE_STALE, LINE_CLOSED, LINE_FAILED, LINE_TIMED_OUT, LINE_BAD_SIZE, LINE_NO_MEMORY, LINE_MORE };

/* With its own thread; in `submitted`, to be looked at; waiting for events; in `ready`, or given the turn from there. */
enum { LINE_HERE, LINE_SUBMITTED, LINE_WATCHED, LINE_READY };

typedef struct Line {
    /* its thread sleeps on these */
    atomic_uint changes;
    atomic_int answered; /* it has the outcome, and the turn */
    atomic_int woken;    /* it is to look around */
    atomic_int sleeps;
    atomic_int has_turn;
    int is_busy;
    unsigned era; /* the process that it is of */
    /* the connection; slot 0 is none */
    int fd;
    uint32_t slot;
    long long limit;
    long long sent, received;
    /* the request */
    struct iovec *next;
    size_t left;
    atomic_int sends_itself; /* a large one: its own thread sends, and is woken when there is room */
    long long deadline;
    /* the answer */
    char *data;
    long long capacity, have, size;
    int outcome, error;
    char small[LINE_SMALL];
    /* while it is not in its own thread's hands */
    atomic_int place;
    int is_new;                  /* not looked at since its thread gave it away */
    struct Line *before, *after; /* all that are submitted or watched */
    struct Line *link;           /* all that are submitted, or ready */
} Line;

typedef struct {
    Line *first, *last;
} LineQueue;

static inline long long line_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void line_append(LineQueue *queue, Line *line) {
    line->link = NULL;
    if (queue->last)
        queue->last->link = line;
    else
        queue->first = line;
    queue->last = line;
}

static inline Line *line_pop(LineQueue *queue) {
    Line *line = queue->first;
    if (line) {
        queue->first = line->link;
        if (!queue->first)
            queue->last = NULL;
    }
    return line;
}

static void line_take_out(LineQueue *queue, Line *line) {
    Line **at = &queue->first, *last = NULL;
    while (*at && *at != line) {
        last = *at;
        at = &last->link;
    }
    if (*at) {
        *at = line->link;
        if (queue->last == line)
            queue->last = last;
    }
}

/* ---- bytes */

static int line_send(Line *line) {
    struct msghdr message;
    memset(&message, 0, sizeof message);
    while (line->left) {
        ssize_t n;
        message.msg_iov = line->next;
        message.msg_iovlen = line->left < LINE_IOV_MOST ? line->left : LINE_IOV_MOST;
        n = sendmsg(line->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            line->error = errno;
            return errno == EAGAIN ? LINE_AGAIN : LINE_FAILED;
        }
        line->sent += n;
        while (line->left && (size_t)n >= line->next->iov_len) {
            n -= line->next->iov_len;
            line->next++;
            line->left--;
        }
        if (n) {
            line->next->iov_base = (char *)line->next->iov_base + n;
            line->next->iov_len -= n;
        }
    }
    return LINE_DONE;
}

/* Read the length once it is there; make room for the rest, never more than has come already and that again. */
static int line_make_room(Line *line) {
    const unsigned char *at = (const unsigned char *)line->data;
    long long capacity;
    char *data;
    if (line->size < 0) {
        if (line->have < 4)
            return LINE_AGAIN;
        line->size = (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
        if (line->size < 0 || (line->limit >= 0 && line->size > line->limit))
            return LINE_BAD_SIZE;
    }
    if (line->have >= line->size + 4)
        return LINE_DONE;
    if (line->have < line->capacity)
        return LINE_AGAIN;
    capacity = line->capacity > LINE_SMALL ? line->capacity * 2 : LINE_FIRST_GROWTH;
    if (capacity > line->size + 4)
        capacity = line->size + 4;
    data = realloc(line->data == line->small ? NULL : line->data, capacity);
    if (!data)
        return LINE_NO_MEMORY;
    if (line->data == line->small)
        memcpy(data, line->small, line->have);
    line->data = data;
    line->capacity = capacity;
    return LINE_AGAIN;
}

static int line_receive(Line *line) {
    long long until = line->received + LINE_HELPING;
    for (;;) {
        ssize_t n = recv(line->fd, line->data + line->have, line->capacity - line->have, MSG_DONTWAIT);
        int outcome;
        if (n == 0)
            return LINE_CLOSED;
        if (n < 0) {
            if (errno == EINTR)
                continue;
            line->error = errno;
            return errno == EAGAIN ? LINE_AGAIN : LINE_FAILED;
        }
        line->have += n;
        line->received += n;
        outcome = line_make_room(line);
        if (outcome != LINE_AGAIN)
            return outcome;
        if (line->received >= until)
            return LINE_MORE;
    }
}

/* An idle connection has nothing to read: anything else is its end, or a frame that nobody asked for. */
static int line_is_stale(Line *line) {
    char byte;
    return !(recv(line->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static int line_has_room(Line *line) {
    struct pollfd fd = {.fd = line->fd, .events = POLLOUT};
    return poll(&fd, 1, 0) > 0;
}
#endif
