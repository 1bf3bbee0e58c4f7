# What the outbox uses of _io.h and of the headers that it takes in.

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "_io.h" nogil:
    struct Line:
        int answered
        long long limit, sent, received
        iovec *next
        size_t left
        bint sends_itself
        long long deadline
        char *data
        long long have, size
        int outcome, error
    int LINE_DONE, LINE_AGAIN, LINE_STALE, LINE_CLOSED, LINE_FAILED, LINE_TIMED_OUT, LINE_BAD_SIZE, LINE_NO_MEMORY
    long long line_now()
    void line_init(Line *line)
    void line_clear(Line *line)
    int line_attach(Line *line, int fd)
    void line_detach(Line *line, bint is_open)
    int line_enter()
    void line_leave()
    bint line_is_inherited(Line *line)
    void line_forget(Line *line)
    void line_submit(Line *line)
    void line_withdraw(Line *line)
    int line_attend(Line *line)
    void line_wake(Line *line)
    void line_end_turn(Line *line)
