/* One thread that moves the bytes of all exchanges of this process, without the interpreter's lock; and whose turn it
 * is to go on in Python once answers are there.
 *
 * Threads that wait for answers in system calls of their own are woken by the kernel all at once, wherever there is a
 * core, and then queue for the interpreter's lock: two sleeps and two wake-ups for each answer, most of them from core
 * to core. Here the answer is read while its thread sleeps, and that one is woken when the one before it has done its
 * work in Python: one sleep, one wake-up, and nobody else awake who could want the lock.
 *
 * A line is in the hands of one thread at a time: its own, or, from line_submit until it is answered or withdrawn, the
 * moving one's. `io.lock` guards who has it, the lists, and the turn; nothing blocks while it is held. Whoever has given
 * a line back may not look at it any more, as its thread may free it: so it is looked at under the lock, which its
 * thread must have passed before. */
#ifndef KPROTO_CHANNEL_IO_H
#define KPROTO_CHANNEL_IO_H

#include "_turn.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LINE_EVENTS = 64 };
enum { LINE_LOOK_NS = 10000000 }; /* how often deadlines are looked at while there is work all the time */

/* ---- the thread that moves them */

/* What can be done for a line now. A new one may have missed events before it was submitted. */
static int line_step(Line *line, unsigned events) {
    int is_new = line->is_new;
    line->is_new = 0;
    if (line->sends_itself) {
        if (line->left)
            return !is_new || line_has_room(line) ? LINE_DONE : LINE_AGAIN; /* to its own thread, to send on */
        return line_receive(line);
    }
    if (is_new && line_is_stale(line))
        return LINE_STALE;
    if (line->left) {
        int outcome = line_send(line);
        if (outcome != LINE_DONE)
            return outcome;
    }
    return events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP) ? line_receive(line) : LINE_AGAIN;
}

/* The moving thread has no more to do with it; `io.lock` is held. */
static void line_bring_back(Line *line) {
    if (line->before)
        line->before->after = line->after;
    else
        io.away = line->after;
    if (line->after)
        line->after->before = line->before;
}

/* What has come of working on it. */
static void line_finish(Line *line, int outcome) {
    Line *sleeper = NULL;
    pthread_mutex_lock(&io.lock);
    io.at = NULL;
    if (outcome == LINE_MORE) {
        atomic_store(&line->place, LINE_SUBMITTED);
        line_append(&io.submitted, line);
        atomic_store(&io.pending, 1);
    } else if (outcome == LINE_DONE && line->left) {
        line_bring_back(line);
        atomic_store(&line->place, LINE_HERE); /* before `woken`: its thread takes that back before it looks here */
        atomic_store(&line->woken, 1);
        sleeper = line_change(line);
    } else if (outcome != LINE_AGAIN) {
        line_bring_back(line);
        line->outcome = outcome;
        atomic_store(&line->place, LINE_READY);
        line_append(&io.ready, line);
        if (io.turn_taken)
            atomic_store(&io.waiting, 1);
        else
            sleeper = line_next_turn();
    }
    pthread_mutex_unlock(&io.lock);
    line_rouse(sleeper);
}

static void line_look_at_deadlines(long long now, long long *earliest) {
    *earliest = -1;
    for (;;) {
        Line *line;
        pthread_mutex_lock(&io.lock);
        for (line = io.away; line; line = line->after) {
            if (line->deadline < 0)
                continue;
            if (line->deadline <= now)
                break;
            if (*earliest < 0 || line->deadline < *earliest)
                *earliest = line->deadline;
        }
        if (line) {
            if (atomic_load(&line->place) == LINE_SUBMITTED)
                line_take_out(&io.submitted, line);
            io.at = line;
        }
        pthread_mutex_unlock(&io.lock);
        if (!line)
            return;
        line_finish(line, LINE_TIMED_OUT);
    }
}

static int line_milliseconds_to_sleep(long long now, long long earliest) {
    long long left = earliest < 0 ? -1 : (earliest - now + 999999) / 1000000;
    if (atomic_load(&io.waiting))
        return 1;
    return left > 0x7FFFFFFF ? 0x7FFFFFFF : (int)left;
}

static void *line_main(void *unused) {
    struct epoll_event events[LINE_EVENTS];
    long long now = line_now(), worked = now, looked = now, earliest = -1;
    int many_cores = atomic_load(&io.many_cores);
    (void)unused;
    for (;;) {
        int i, n, timeout = 0;
        Line *line, *late = NULL;
        for (i = 0; i < LINE_EVENTS && atomic_load(&io.pending); i++) {
            pthread_mutex_lock(&io.lock);
            line = io.at = line_pop(&io.submitted);
            if (line)
                atomic_store(&line->place, LINE_WATCHED);
            atomic_store(&io.pending, io.submitted.first != NULL);
            pthread_mutex_unlock(&io.lock);
            if (line)
                line_finish(line, line_step(line, line->is_new ? 0 : EPOLLIN));
            worked = now;
        }
        if (!many_cores || now - worked > LINE_HOT_NS || now - looked > LINE_LOOK_NS) {
            line_look_at_deadlines(now, &earliest);
            looked = now;
        }
        if (!many_cores || now - worked > LINE_HOT_NS) {
            timeout = line_milliseconds_to_sleep(now, earliest);
            atomic_store(&io.asleep, 1);
            if (atomic_load(&io.pending) || atomic_load(&io.ending))
                timeout = 0; /* came in between, and wakes nobody */
        }
        n = epoll_wait(io.epoll, events, LINE_EVENTS, timeout);
        atomic_store(&io.asleep, 0);
        if (atomic_load(&io.ending))
            return NULL;
        now = line_now();
        for (i = 0; i < n; i++) {
            uint64_t key = events[i].data.u64;
            uint32_t slot = (uint32_t)key;
            if (!key) {
                eventfd_t count;
                eventfd_read(io.wake, &count);
                continue;
            }
            pthread_mutex_lock(&io.lock);
            line = slot < io.slot_count && io.slots[slot].generation == key >> 32 ? io.slots[slot].line : NULL;
            if (line && atomic_load(&line->place) != LINE_WATCHED)
                line = NULL; /* its next step will see by itself */
            io.at = line;
            pthread_mutex_unlock(&io.lock);
            if (line) {
                line_finish(line, line_step(line, events[i].events));
                worked = now;
            }
        }
        if (atomic_load(&io.waiting)) {
            pthread_mutex_lock(&io.lock);
            if (now - io.turn_since > LINE_TURN_NS)
                late = line_next_turn();
            pthread_mutex_unlock(&io.lock);
            line_rouse(late);
        }
        if (!n && !timeout)
            sched_yield();
    }
}

/* ---- what its own thread, and whoever puts, may call */

static void line_init(Line *line) {
    memset(line, 0, sizeof *line);
    line->fd = -1;
    line->limit = -1;
    line->data = line->small;
    line->capacity = LINE_SMALL;
    line->size = -1;
    line->era = io.era;
}

/* Forget request and answer. */
static void line_clear(Line *line) {
    if (line->data != line->small)
        free(line->data);
    line->data = line->small;
    line->capacity = LINE_SMALL;
    line->have = 0;
    line->size = -1;
    line->left = 0;
    line->sends_itself = 0;
    if (line->is_busy)
        atomic_fetch_sub(&io.busy, 1);
    line->is_busy = 0;
    atomic_store(&line->place, LINE_HERE);
    atomic_store(&line->answered, 0);
}

static void line_ring(void) {
    if (atomic_load(&io.asleep))
        eventfd_write(io.wake, 1);
}

static void line_submit(Line *line) {
    pthread_mutex_lock(&io.lock);
    atomic_store(&line->place, LINE_SUBMITTED);
    line->is_new = 1;
    if (!line->is_busy)
        atomic_fetch_add(&io.busy, 1);
    line->is_busy = 1;
    line->before = NULL;
    line->after = io.away;
    if (io.away)
        io.away->before = line;
    io.away = line;
    line_append(&io.submitted, line);
    atomic_store(&io.pending, 1);
    pthread_mutex_unlock(&io.lock);
    line_ring();
}

/* Wait for the answer or for being woken, and send what its own thread is to send; 0 if a signal came first. */
static int line_attend(Line *line) {
    int undisturbed;
    if (line->sends_itself && atomic_load(&line->place) == LINE_HERE) {
        int outcome = !line->sent && line_is_stale(line) ? LINE_STALE : line_send(line);
        if (outcome != LINE_DONE && outcome != LINE_AGAIN) {
            line->outcome = outcome;
            atomic_store(&line->answered, 1);
            return 1;
        }
        line_submit(line);
    }
    undisturbed = line_wait(line);
    atomic_store(&line->woken, 0);
    return undisturbed;
}

/* Take it back, whatever has become of it. */
static void line_withdraw(Line *line) {
    for (;;) {
        pthread_mutex_lock(&io.lock);
        if (io.at != line)
            break;
        pthread_mutex_unlock(&io.lock);
        sched_yield(); /* it is being worked on, which never takes long */
    }
    switch (atomic_load(&line->place)) {
    case LINE_SUBMITTED:
        line_take_out(&io.submitted, line);
        line_bring_back(line);
        break;
    case LINE_WATCHED:
        line_bring_back(line);
        break;
    case LINE_READY:
        line_take_out(&io.ready, line);
        atomic_store(&io.waiting, io.ready.first != NULL);
    }
    atomic_store(&line->place, LINE_HERE);
    pthread_mutex_unlock(&io.lock);
}

/* Whether another line has the connection. `io.lock` is held. */
static int line_is_taken(int fd) {
    uint32_t slot;
    for (slot = 1; slot < io.slot_count; slot++)
        if (io.slots[slot].line && io.slots[slot].line->fd == fd)
            return 1;
    return 0;
}

/* Watch a connection; -1 and errno if that cannot be. */
static int line_attach(Line *line, int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    uint32_t slot;
    int failed = -1;
    pthread_mutex_lock(&io.lock);
    for (slot = 1; slot < io.slot_count && io.slots[slot].line; slot++)
        ;
    if (slot >= io.slot_count) {
        uint32_t count = slot < 32 ? 64 : 2 * slot;
        LineSlot *slots = realloc(io.slots, count * sizeof *slots);
        if (!slots)
            goto end;
        memset(slots + io.slot_count, 0, (count - io.slot_count) * sizeof *slots);
        io.slots = slots;
        io.slot_count = count;
    }
    event.data.u64 = (uint64_t)++io.slots[slot].generation << 32 | slot;
    failed = epoll_ctl(io.epoll, EPOLL_CTL_ADD, fd, &event);
    if (failed && errno == EEXIST && !line_is_taken(fd)) /* left by a line that was not told whether it was open */
        failed = epoll_ctl(io.epoll, EPOLL_CTL_MOD, fd, &event);
    if (!failed) {
        io.slots[slot].line = line;
        line->fd = fd;
        line->slot = slot;
    }
end:
    pthread_mutex_unlock(&io.lock);
    return failed;
}

/* Leave the connection alone. To be called before the descriptor is closed, as afterwards it may be another's; without
 * `is_open` it is not touched, and what still happens to it is ignored. */
static void line_detach(Line *line, int is_open) {
    if (!line->slot)
        return;
    pthread_mutex_lock(&io.lock);
    if (is_open)
        epoll_ctl(io.epoll, EPOLL_CTL_DEL, line->fd, NULL);
    io.slots[line->slot].line = NULL;
    pthread_mutex_unlock(&io.lock);
    line->slot = 0;
    line->fd = -1;
}

/* ---- the thread's life */

static void line_give_back(void) {
    if (io.epoll >= 0)
        close(io.epoll);
    if (io.wake >= 0)
        close(io.wake);
    io.epoll = io.wake = -1;
    free(io.slots);
    io.slots = NULL;
    io.slot_count = 0;
}

/* The lists of a child are of one moment. */
static void line_before_fork(void) {
    pthread_mutex_lock(&io.life);
    pthread_mutex_lock(&io.lock);
}

static void line_after_fork(void) {
    pthread_mutex_unlock(&io.lock);
    pthread_mutex_unlock(&io.life);
}

/* In a child there is neither the thread nor any whose lines these were. */
static void line_in_child(void) {
    unsigned era = io.era;
    line_give_back();
    memset(&io, 0, sizeof io);
    pthread_mutex_init(&io.life, NULL);
    pthread_mutex_init(&io.lock, NULL);
    io.epoll = io.wake = -1;
    io.hooked = 1;
    io.era = era + 1;
}

/* Whether it comes from the process that forked this one: all that may be done with it is to forget it. */
static inline int line_is_inherited(Line *line) { return line->era != io.era; }

static void line_forget(Line *line) {
    if (line->data != line->small)
        free(line->data);
    line_init(line);
}

static int line_start_thread(void) {
    struct epoll_event event = {.events = EPOLLIN};
    sigset_t all, before;
    cpu_set_t cores;
    int error;
    atomic_store(&io.many_cores, !sched_getaffinity(0, sizeof cores, &cores) && CPU_COUNT(&cores) > 1);
    io.epoll = epoll_create1(EPOLL_CLOEXEC);
    io.wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (io.epoll < 0 || io.wake < 0 || epoll_ctl(io.epoll, EPOLL_CTL_ADD, io.wake, &event) < 0)
        return errno;
    if (!io.hooked && (error = pthread_atfork(line_before_fork, line_after_fork, line_in_child)))
        return error;
    io.hooked = 1;
    atomic_store(&io.ending, 0);
    sigfillset(&all); /* signals are for the interpreter's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&io.thread, NULL, line_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error)
        pthread_setname_np(io.thread, "kproto-io");
    return error;
}

/* One user more, the first of which starts the thread. Gives 0, or what went wrong. */
static int line_enter(void) {
    int error = 0;
    pthread_mutex_lock(&io.life);
    if (!io.users && (error = line_start_thread()))
        line_give_back();
    else
        io.users++;
    pthread_mutex_unlock(&io.life);
    return error;
}

/* One user less, the last of which ends the thread and waits for it. */
static void line_leave(void) {
    pthread_mutex_lock(&io.life);
    if (io.users && !--io.users) {
        atomic_store(&io.ending, 1);
        eventfd_write(io.wake, 1);
        pthread_join(io.thread, NULL);
        line_give_back();
    }
    pthread_mutex_unlock(&io.life);
}
#endif
