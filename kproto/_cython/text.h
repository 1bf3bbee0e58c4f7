/* A str as UTF-8, sized and written without the interpreter: between the sizes of a message and its bytes no Python runs.
 *
 * Surrogates are written as Java writes them: a pair as the character that it stands for, a lone one as a question mark.
 */
#ifndef KPROTO_TEXT_H
#define KPROTO_TEXT_H

#include <Python.h>
#include "wire.h"

static inline int kp_is_high(uint32_t c) { return (c & 0xfffffc00u) == 0xd800; }
static inline int kp_is_low(uint32_t c) { return (c & 0xfffffc00u) == 0xdc00; }

/* The character at *i, which moves behind it. */
static inline uint32_t kp_character(int kind, const void *data, Py_ssize_t n, Py_ssize_t *i) {
    uint32_t c = PyUnicode_READ(kind, data, *i), low;
    ++*i;
    if ((c & 0xfffff800u) != 0xd800) return c;
    if (kp_is_high(c) && *i < n && kp_is_low(low = PyUnicode_READ(kind, data, *i))) {
        ++*i;
        return 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
    }
    return '?';
}

static KP_COLD int64_t kp_text_size_slow(PyObject *s) {
    const int kind = (int)PyUnicode_KIND(s);
    const void *data = PyUnicode_DATA(s);
    const Py_ssize_t n = PyUnicode_GET_LENGTH(s);
    int64_t size = 0;
    for (Py_ssize_t i = 0; i < n;) {
        uint32_t c = kp_character(kind, data, n, &i);
        size += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    }
    return size;
}

static KP_COLD uint8_t *kp_put_text_slow(uint8_t *q, PyObject *s) {
    const int kind = (int)PyUnicode_KIND(s);
    const void *data = PyUnicode_DATA(s);
    const Py_ssize_t n = PyUnicode_GET_LENGTH(s);
    for (Py_ssize_t i = 0; i < n;) {
        uint32_t c = kp_character(kind, data, n, &i);
        if (c < 0x80) *q++ = (uint8_t)c;
        else {
            int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            *q++ = (uint8_t)((0xf0u << (3 - more)) | c >> (6 * more));
            while (more--) *q++ = (uint8_t)(0x80 | (c >> (6 * more) & 0x3f));
        }
    }
    return q;
}

static inline int64_t kp_text_size(PyObject *s) {
    return KP_LIKELY(PyUnicode_IS_COMPACT_ASCII(s)) ? (int64_t)PyUnicode_GET_LENGTH(s) : kp_text_size_slow(s);
}

static inline uint8_t *kp_put_text(uint8_t *q, PyObject *s) {
    if (!KP_LIKELY(PyUnicode_IS_COMPACT_ASCII(s))) return kp_put_text_slow(q, s);
    memcpy(q, PyUnicode_DATA(s), (size_t)PyUnicode_GET_LENGTH(s));
    return q + PyUnicode_GET_LENGTH(s);
}

#endif
