/* Lines under stress: conversations with peers that answer, dawdle, stay silent and close; withdrawn in the middle,
 * timed out, woken and signalled at any time; users come and go until there is none, and come back. Each answer must be
 * the one to its own request, each wait must end.
 *
 *     io_stress SECONDS [SEED]
 *
 * Meant for the sanitizers too (tools/sanitize); lines are freed and made anew, so that a late look at one is found. */
#include "_io.h"

#include <stdio.h>

enum { WORKERS = 5, LARGEST = 800000, PIECES = 1500, SILENT_NS = 20000000, HANGS_AFTER_S = 60 };
enum { WHOLE, BY_BYTES, IN_PIECES, SILENT, HALF_AND_CLOSE, CLOSE, BAD_SIZE, UNASKED, MANNERS };

typedef struct {
    unsigned seed, peer_seed;
    pthread_t thread, peer;
    pthread_mutex_t lock; /* held to make or free the line, and to wake it */
    Line *line;
    int far;
    long answered, withdrawn, timed_out, ended;
} Worker;

typedef struct { /* all numbers as they are in memory but for the frame's length */
    unsigned char length[4];
    uint32_t id, manners, answer_size, body_size;
} Head;

static Worker workers[WORKERS];
static atomic_int stop;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            abort(); \
        } \
    } while (0)

static unsigned any(unsigned *seed, unsigned below) {
    *seed = *seed * 1664525 + 1013904223;
    return (unsigned)(((uint64_t)*seed * below) >> 32);
}

static void on_signal(int number) { (void)number; }

static unsigned char byte_of(uint32_t id, size_t at) { return (unsigned char)(id * 31 + at * 7 + (at >> 8)); }

static void put_length(unsigned char *at, uint32_t n) {
    at[0] = n >> 24, at[1] = n >> 16, at[2] = n >> 8, at[3] = n;
}

/* ---- the peer: one thread for each connection */

static int read_all(int fd, void *data, size_t size) {
    while (size) {
        ssize_t n = recv(fd, data, size, 0);
        if (n <= 0)
            return 0;
        data = (char *)data + n;
        size -= n;
    }
    return 1;
}

static int write_all(int fd, const void *data, size_t size, size_t piece) {
    while (size) {
        ssize_t n = send(fd, data, size < piece ? size : piece, MSG_NOSIGNAL);
        if (n <= 0)
            return 0;
        data = (const char *)data + n;
        size -= n;
        if (size && piece < 1000)
            sched_yield();
    }
    return 1;
}

static void *peer_main(void *argument) {
    Worker *worker = argument;
    unsigned seed = worker->peer_seed;
    unsigned char *body = malloc(LARGEST), *answer = malloc(9 + LARGEST);
    Head head;
    int goes_on = 1;
    while (goes_on && read_all(worker->far, &head, sizeof head) && read_all(worker->far, body, head.body_size)) {
        size_t i, size = 8 + head.answer_size;
        for (i = 0; i < head.body_size; i++)
            CHECK(body[i] == byte_of(head.id, i));
        put_length(answer, 4 + head.answer_size);
        memcpy(answer + 4, &head.id, 4);
        answer[size] = 0;
        for (i = 0; i < head.answer_size; i++)
            answer[8 + i] = byte_of(~head.id, i);
        switch (head.manners) {
        case BY_BYTES:
            goes_on = write_all(worker->far, answer, size, size < 3000 ? 1 : 999);
            break;
        case IN_PIECES:
            goes_on = write_all(worker->far, answer, size, 1 + any(&seed, 2000));
            break;
        case SILENT:
            break;
        case HALF_AND_CLOSE:
            write_all(worker->far, answer, size / 2, size);
            goes_on = 0;
            break;
        case CLOSE:
            goes_on = 0;
            break;
        case BAD_SIZE:
            put_length(answer, any(&seed, 2) ? 0xFFFFFFFF : LARGEST + 5);
            goes_on = write_all(worker->far, answer, size, size);
            break;
        default:
            size += head.manners == UNASKED;
            goes_on = write_all(worker->far, answer, size, size);
        }
    }
    free(body);
    free(answer);
    shutdown(worker->far, SHUT_RDWR);
    return NULL;
}

/* ---- the worker: what an outbox and its thread do */

static void connect_to_peer(Worker *worker) {
    int pair[2], room = 1 << (12 + any(&worker->seed, 6));
    Line *line = malloc(sizeof *line);
    line_init(line);
    pthread_mutex_lock(&worker->lock);
    worker->line = line;
    pthread_mutex_unlock(&worker->lock);
    line->limit = LARGEST + 4;
    CHECK(!line_enter());
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    room = 1 << 20; /* more can come in at a time than one line is served with */
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    worker->far = pair[1];
    worker->peer_seed = any(&worker->seed, 1 << 30);
    CHECK(!pthread_create(&worker->peer, NULL, peer_main, worker));
    CHECK(!line_attach(line, pair[0]));
}

static void disconnect(Worker *worker) {
    Line *line = worker->line;
    int fd = line->fd, is_open;
    is_open = any(&worker->seed, 2);
    if (is_open)
        line_detach(line, 1);
    shutdown(fd, SHUT_RDWR);
    close(fd);
    line_detach(line, 0);
    pthread_join(worker->peer, NULL);
    close(worker->far);
    line_end_turn(line);
    line_leave();
    pthread_mutex_lock(&worker->lock);
    worker->line = NULL;
    pthread_mutex_unlock(&worker->lock);
    memset(line, 0xA5, sizeof *line);
    free(line);
}

static int exchange(Worker *worker, unsigned char *body, struct iovec *pieces) {
    Line *line = worker->line;
    unsigned *seed = &worker->seed;
    Head head = {.id = any(seed, 0x7FFFFFFF), .manners = any(seed, 3) ? WHOLE : any(seed, MANNERS)};
    size_t i, at = 0, count = 2;
    int is_impatient = !any(seed, 8), goes_on, outcome;
    head.answer_size = any(seed, 6) ? any(seed, 3000) : any(seed, LARGEST);
    if (head.manners == UNASKED)
        head.answer_size %= 1000; /* so that all of it arrives at once */
    head.body_size = any(seed, 6) ? any(seed, 3000) : any(seed, LARGEST);
    put_length(head.length, sizeof head - 4 + head.body_size);
    for (i = 0; i < head.body_size; i++)
        body[i] = byte_of(head.id, i);
    pieces[0] = (struct iovec){&head, sizeof head};
    pieces[1] = (struct iovec){body, 0};
    while (at < head.body_size) {
        size_t n = count == PIECES ? head.body_size - at : any(seed, head.body_size / (1 + any(seed, PIECES)) + 1);
        n = n < head.body_size - at ? n : head.body_size - at;
        pieces[count++] = (struct iovec){body + at, n};
        at += n;
    }
    line->next = pieces;
    line->left = count;
    line->sent = line->received = 0;
    line->sends_itself = head.body_size > 20000;
    line->deadline = line_now() + (head.manners == SILENT || !any(seed, 20) ? any(seed, SILENT_NS) : 3600000000000);
    if (!line->sends_itself)
        line_submit(line);
    while (!atomic_load(&line->answered)) {
        line_attend(line);
        if (is_impatient && !any(seed, 3)) {
            line_withdraw(line);
            worker->withdrawn++;
            line_clear(line);
            return 0;
        }
    }
    outcome = line->outcome;
    goes_on = outcome == LINE_DONE;
    if (goes_on) {
        CHECK(head.manners <= IN_PIECES || head.manners == UNASKED);
        CHECK(!line->left && line->sent == (long long)sizeof head + head.body_size);
        CHECK(line->size == 4 + (long long)head.answer_size && line->have >= line->size + 4);
        CHECK(!memcmp(line->data + 4, &head.id, 4));
        for (i = 0; i < head.answer_size; i++)
            CHECK((unsigned char)line->data[8 + i] == byte_of(~head.id, i));
        worker->answered++;
    } else if (outcome == LINE_TIMED_OUT) {
        CHECK(line->deadline <= line_now());
        worker->timed_out++;
    } else {
        CHECK(outcome == LINE_STALE ? !line->sent : outcome != LINE_BAD_SIZE || head.manners == BAD_SIZE);
        worker->ended++;
    }
    line_clear(line);
    return goes_on;
}

static void *worker_main(void *argument) {
    Worker *worker = argument;
    unsigned char *body = malloc(LARGEST);
    struct iovec *pieces = malloc((PIECES + 1) * sizeof *pieces);
    while (!atomic_load(&stop)) {
        int left = any(&worker->seed, 30), fd;
        connect_to_peer(worker);
        while (exchange(worker, body, pieces) && left-- && !atomic_load(&stop)) {
            if (!any(&worker->seed, 5)) { /* lent again */
                fd = worker->line->fd;
                line_detach(worker->line, any(&worker->seed, 2));
                CHECK(!line_attach(worker->line, fd));
            }
            if (!any(&worker->seed, 10))
                usleep(any(&worker->seed, 2000)); /* has the turn for too long */
        }
        disconnect(worker);
        if (!any(&worker->seed, 3))
            usleep(any(&worker->seed, 3000));
    }
    free(body);
    free(pieces);
    return NULL;
}

static void pester(unsigned *seed) {
    Worker *worker = workers + any(seed, WORKERS);
    pthread_mutex_lock(&worker->lock);
    if (worker->line)
        line_wake(worker->line);
    pthread_mutex_unlock(&worker->lock);
    pthread_kill(workers[any(seed, WORKERS)].thread, SIGUSR1);
    usleep(any(seed, 600));
}

int main(int count, char **arguments) {
    unsigned seed = count > 2 ? strtoul(arguments[2], NULL, 10) : 1;
    long long until = line_now() + (long long)(strtod(count > 1 ? arguments[1] : "1", NULL) * 1e9);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = 0};
    Worker sum = {.seed = 0};
    int i;
    sigaction(SIGUSR1, &action, NULL);
    alarm(HANGS_AFTER_S + (unsigned)((until - line_now()) / 1000000000)); /* ends a run that hangs */
    for (i = 0; i < WORKERS; i++) {
        workers[i].seed = seed * 7919 + i;
        pthread_mutex_init(&workers[i].lock, NULL);
        CHECK(!pthread_create(&workers[i].thread, NULL, worker_main, workers + i));
    }
    while (line_now() < until)
        pester(&seed);
    atomic_store(&stop, 1);
    for (i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        sum.answered += workers[i].answered;
        sum.withdrawn += workers[i].withdrawn;
        sum.timed_out += workers[i].timed_out;
        sum.ended += workers[i].ended;
    }
    CHECK(!io.users && io.epoll < 0 && !io.away && !io.submitted.first && !io.ready.first && !io.at && !io.busy);
    CHECK(sum.answered && sum.withdrawn && sum.timed_out && sum.ended);
    printf("answered %ld, withdrawn %ld, timed out %ld, ended %ld\n", sum.answered, sum.withdrawn, sum.timed_out, sum.ended);
    return 0;
}
