/* The state that all lines of this process share, how their threads sleep and wake, and whose turn it is. */
#ifndef KPROTO_CHANNEL_TURN_H
#define KPROTO_CHANNEL_TURN_H

#include "_line.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_HOT_NS = 100000 };  /* after work, look again this long before sleeping: falling asleep costs as much */
enum { LINE_TURN_NS = 300000 }; /* whoever has the turn for longer waits for something: others go on meanwhile */

typedef struct {
    Line *line;
    uint32_t generation;
} LineSlot;

static struct {
    pthread_mutex_t life; /* users, hooked; held while the thread starts or ends */
    int users, hooked;
    unsigned era; /* one more in each child */
    pthread_t thread;
    atomic_int ending;
    pthread_mutex_t lock; /* all below but the atomic ones */
    int epoll, wake;
    LineSlot *slots; /* slots[0] is not used; a free slot has no line */
    uint32_t slot_count;
    LineQueue submitted, ready;
    Line *away, *at; /* `at`: the one that is being worked on */
    int turn_taken;
    long long turn_since;
    atomic_int asleep, pending, waiting; /* `pending`, `waiting`: is there any submitted, any ready */
    atomic_int busy, staying; /* how many have a request that is not done with; one thread that waits stays awake */
    atomic_int many_cores;
} io = {.life = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, .epoll = -1, .wake = -1};

/* ---- sleeping and waking */

/* Tell it that something has changed; gives whom to rouse, which needs no lock: the address is all that is used. */
static Line *line_change(Line *line) {
    atomic_fetch_add(&line->changes, 1);
    return atomic_load(&line->sleeps) ? line : NULL;
}

static void line_rouse(Line *sleeper) {
    if (sleeper)
        syscall(SYS_futex, &sleeper->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void line_wake(Line *line) {
    atomic_store(&line->woken, 1);
    line_rouse(line_change(line));
}

/* The next one whose answer is there, now that nobody goes on in Python. `io.lock` is held; the caller rouses what this
 * gives once it is not, so that it does not wake to find the lock taken. */
static Line *line_next_turn(void) {
    Line *next = line_pop(&io.ready), *sleeper = NULL;
    io.turn_taken = next != NULL;
    if (next) {
        atomic_store(&next->has_turn, 1);
        io.turn_since = line_now();
        atomic_store(&next->answered, 1);
        sleeper = line_change(next);
    }
    atomic_store(&io.waiting, io.ready.first != NULL);
    return sleeper;
}

static void line_end_turn(Line *line) {
    Line *sleeper;
    if (!atomic_load(&line->has_turn))
        return;
    atomic_store(&line->has_turn, 0);
    pthread_mutex_lock(&io.lock);
    sleeper = line_next_turn();
    pthread_mutex_unlock(&io.lock);
    line_rouse(sleeper);
}

static inline int line_has_changed(Line *line) { return atomic_load(&line->answered) || atomic_load(&line->woken); }

/* Where one conversation is all there is, its thread stays awake for a while: waking it up, on a core that has gone idle
 * meanwhile, would take longer than the answer. */
static void line_stay_awake(Line *line) {
    long long until;
    if (!atomic_load(&io.many_cores) || atomic_load(&io.busy) > 1 || atomic_exchange(&io.staying, 1))
        return;
    until = line_now() + LINE_HOT_NS;
    while (!line_has_changed(line) && atomic_load(&io.busy) <= 1 && line_now() < until)
        sched_yield();
    atomic_store(&io.staying, 0);
}

/* Sleep until it is answered or woken; 0 if a signal came first. */
static int line_wait(Line *line) {
    int undisturbed = 1;
    line_end_turn(line);
    line_stay_awake(line);
    atomic_store(&line->sleeps, 1);
    while (undisturbed) {
        unsigned seen = atomic_load(&line->changes);
        if (line_has_changed(line))
            break;
        undisturbed = syscall(SYS_futex, &line->changes, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0) == 0 || errno != EINTR;
    }
    atomic_store(&line->sleeps, 0);
    return undisturbed;
}
#endif
