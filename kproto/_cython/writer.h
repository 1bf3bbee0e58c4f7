/* A message's bytes while they are written: checks and bytes in one pass, in memory that grows.
 *
 * Nothing here runs Python code or makes an object that the collector watches: until the last byte is written, no other
 * thread and no finalizer can change the message.
 */
#ifndef KPROTO_WRITER_H
#define KPROTO_WRITER_H

#include "rows.h"
#include "text.h"

enum { KP_SMALL_MESSAGE = 1024, KP_WRITE_SLACK = 4 * KP_SLACK };

typedef struct {
    uint8_t *q, *end;               /* where the next byte goes; the end of the memory, but for KP_WRITE_SLACK bytes */
    uint8_t *start;                 /* `small`, or the contents of `out` */
    PyObject *out;                  /* the bytes object that becomes the message; NULL while `small` holds it */
    int64_t tail;                   /* bytes that follow whatever is written now, as far as they are known */
    PyObject *name;                 /* the topic name written last, borrowed; NULL: none yet */
    int64_t name_at, name_size;     /* its place in the message, length included */
    uint8_t small[KP_SMALL_MESSAGE + KP_WRITE_SLACK];
} kp_writer;

static inline void kp_begin(kp_writer *w) {
    w->q = w->start = w->small;
    w->end = w->small + KP_SMALL_MESSAGE;
    w->out = w->name = NULL;
    w->tail = 0;
}

static KP_COLD int kp_grow(kp_writer *w, int64_t n) {
    const int64_t used = w->q - w->start, capacity = w->end - w->start, more = capacity + capacity / 4;
    int64_t need = used + n + w->tail + 128;
    if (need < more) need = more;
    if (w->out == NULL) {
        w->out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)need + KP_WRITE_SLACK);
        if (w->out == NULL) return -1;
        memcpy(PyBytes_AS_STRING(w->out), w->small, (size_t)used);
    } else if (_PyBytes_Resize(&w->out, (Py_ssize_t)need + KP_WRITE_SLACK)) return -1;
    w->start = (uint8_t *)PyBytes_AS_STRING(w->out);
    w->q = w->start + used;
    w->end = w->start + need;
    kp_use_large_pages(w->start, need);
    return 0;
}

/* Makes sure that n more bytes can be written; -1 where there is no memory. */
KP_INLINE int kp_reserve(kp_writer *w, int64_t n) { return KP_LIKELY(w->end - w->q >= n) ? 0 : kp_grow(w, n); }

/* The same for a loop that keeps the place of the next byte in a variable of its own: gives that place, or NULL. Through a
 * pointer each byte written could change the writer, and the compiler would have to load its fields again. */
KP_INLINE uint8_t *kp_reserve_at(kp_writer *w, uint8_t *q, int64_t n) {
    if (KP_LIKELY(w->end - q >= n)) return q;
    w->q = q;
    return kp_grow(w, n) ? NULL : w->q;
}

KP_INLINE int kp_add16(kp_writer *w, int16_t x) {
    if (kp_reserve(w, 2)) return -1;
    kp_put16(w->q, x);
    w->q += 2;
    return 0;
}

KP_INLINE int kp_add32(kp_writer *w, int32_t x) {
    if (kp_reserve(w, 4)) return -1;
    kp_put32(w->q, x);
    w->q += 4;
    return 0;
}

KP_INLINE int kp_add_count(kp_writer *w, int64_t n, int flexible) {
    if (kp_reserve(w, 5)) return -1;
    w->q = kp_put_count(w->q, n, flexible);
    return 0;
}

KP_INLINE int kp_add_bytes(kp_writer *w, const void *from, int64_t n) {
    if (kp_reserve(w, n)) return -1;
    memcpy(w->q, from, (size_t)n);
    w->q += n;
    return 0;
}

/* Writes the topic name once more that was written last, in pieces of 32 bytes; memory for it is reserved. */
KP_INLINE uint8_t *kp_put_same_name(const kp_writer *w, uint8_t *q) {
    const uint8_t *from = w->start + w->name_at;
    const int64_t size = w->name_size;
    int64_t i = 0;
    do { memcpy(q + i, from + i, 16); memcpy(q + i + 16, from + i + 16, 16); i += 32; } while (i < size);
    return q + size;
}

/* The finished bytes, a new reference. Little memory left over stays with them: giving it back would cost a copy. */
static PyObject *kp_finish(kp_writer *w) {
    const int64_t size = w->q - w->start;
    if (w->out == NULL) return PyBytes_FromStringAndSize((const char *)w->small, (Py_ssize_t)size);
    if (PyBytes_GET_SIZE(w->out) - size > size / 16) {
        if (_PyBytes_Resize(&w->out, (Py_ssize_t)size)) return NULL;
    } else {
        Py_SET_SIZE((PyVarObject *)w->out, (Py_ssize_t)size);
        *w->q = 0;
    }
    PyObject *out = w->out;
    w->out = NULL;
    return out;
}

#endif
