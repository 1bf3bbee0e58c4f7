/* The wire's primitives: big-endian numbers, varints, counts and string spans, each checked against the end of the bytes.
 *
 * A reader function takes the place of its first byte and returns the place behind its last one, or NULL (-1 for a count)
 * after it has noted a fault in the reader. Nothing here needs the interpreter, allocates, or reads a byte twice: bytes that another thread
 * changes meanwhile give wrong values, never a read or write out of bounds.
 */
#ifndef KPROTO_WIRE_H
#define KPROTO_WIRE_H

#include "fault.h"
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Most of the cost of fresh memory is page faults; large pages have few. The system may ignore the advice. */
static inline void kp_use_large_pages(void *p, int64_t n) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 2u << 20, from = ((uintptr_t)p + page - 1) & ~(page - 1), to = ((uintptr_t)p + (uintptr_t)n) & ~(page - 1);
    if (n >= (8 << 20) && to > from) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p; (void)n;
#endif
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static inline int16_t kp_i16(kp_ptr p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)__builtin_bswap16(v); }
static inline int32_t kp_i32(kp_ptr p) { uint32_t v; memcpy(&v, p, 4); return (int32_t)__builtin_bswap32(v); }
static inline int64_t kp_i64(kp_ptr p) { uint64_t v; memcpy(&v, p, 8); return (int64_t)__builtin_bswap64(v); }
static inline void kp_put16(uint8_t *q, int16_t x) { uint16_t v = __builtin_bswap16((uint16_t)x); memcpy(q, &v, 2); }
static inline void kp_put32(uint8_t *q, int32_t x) { uint32_t v = __builtin_bswap32((uint32_t)x); memcpy(q, &v, 4); }
static inline void kp_put64(uint8_t *q, int64_t x) { uint64_t v = __builtin_bswap64((uint64_t)x); memcpy(q, &v, 8); }

static inline void kp_ids(int32_t *restrict to, kp_ptr restrict p, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = kp_i32(p + 4 * i);
}

/* Four at once, by way of an array of our own: all are loaded before the first is stored, as one vector. */
KP_INLINE void kp_reverse_four(void *to, const void *from) {
    uint32_t four[4];
    memcpy(four, from, 16);
    for (int i = 0; i < 4; i++) four[i] = __builtin_bswap32(four[i]);
    memcpy(to, four, 16);
}

/* The same where the bytes behind may be read and overwritten: ids in fours, so that lists of different short lengths
 * cause no mispredicted branches. `e` ends the bytes; KP_SLACK more ids may be written behind `to`. */
#define KP_SLACK 8
KP_INLINE void kp_ids_loose(int32_t *restrict to, kp_ptr restrict p, int64_t n, kp_ptr e) {
    if (n == 0) return;
    if (KP_LIKELY(n <= 8 && e - p >= 32)) {
        kp_reverse_four(to, p);
        if (n > 4) kp_reverse_four(to + 4, p + 16);
    } else kp_ids(to, p, n);
}

static inline uint8_t *kp_put_ids(uint8_t *restrict q, const int32_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) kp_put32(q + 4 * i, from[i]);
    return q + 4 * n;
}

/* The same where KP_SLACK ids more may be read behind `from` and written behind them. */
KP_INLINE uint8_t *kp_put_ids_loose(uint8_t *restrict q, const int32_t *restrict from, int64_t n) {
    if (n == 0) return q;
    if (KP_LIKELY(n <= 8)) {
        kp_reverse_four(q, from);
        if (n > 4) kp_reverse_four(q + 16, from + 4);
        return q + 4 * n;
    }
    return kp_put_ids(q, from, n);
}

static inline uint8_t *kp_put_varint(uint8_t *q, uint32_t v) {
    while (v >= 0x80) { *q++ = (uint8_t)v | 0x80; v >>= 7; }
    *q++ = (uint8_t)v;
    return q;
}

static inline int64_t kp_varint_size(uint32_t v) {
    int64_t n = 1;
    while (v >= 0x80) { n++; v >>= 7; }
    return n;
}

/* A byte that decides on a bound is read once, whatever another thread does to the buffer meanwhile. */
static inline uint8_t kp_once(kp_ptr p) { return *(const volatile uint8_t *)p; }

/* Kafka's reading: at most five bytes, of the fifth only the low four bits count, its top bit is refused. */
static KP_COLD kp_ptr kp_varint_slow(kp_reader *r, kp_ptr p, uint32_t *out, const char *field) {
    kp_ptr start = p;
    uint32_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (p >= r->end) return kp_fault(r, KP_SHORT, start, r->end - start + 1, field);
        uint8_t b = kp_once(p++);
        v |= (uint32_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            if ((shift && b == 0) || (shift == 28 && b > 0x0f)) {
                if (r->strict) return kp_fault(r, KP_STRICT_VARINT, start, v, field);
                r->plain = 0;
            }
            *out = v;
            return p;
        }
    }
    return kp_fault(r, KP_VARINT_LONG, start, 0, field);
}

KP_INLINE kp_ptr kp_varint(kp_reader *r, kp_ptr p, kp_ptr e, uint32_t *out, const char *field) {
    if (KP_LIKELY(p < e)) {
        uint8_t b = kp_once(p);
        if (KP_LIKELY(b < 0x80)) { *out = b; return p + 1; }
    }
    return kp_varint_slow(r, p, out, field);
}

KP_INLINE kp_ptr kp_bool(kp_reader *r, kp_ptr p, uint8_t *out, const char *field) {
    uint8_t b = *p;
    if (b > 1) {
        if (r->strict) return kp_fault(r, KP_STRICT_BOOL, p, b, field);
        r->plain = 0;
    }
    *out = b != 0;
    return p + 1;
}

/* ---- counts ---------------------------------------------------------------------------------------------------- */

/* The length of an array whose elements take `least` bytes or more, with `after` more bytes due behind it, which
 * `layout` names ("" and 0 for none). -1 unless all of it is there. The length is never more than the bytes left. */
static KP_COLD int64_t kp_count_slow(kp_reader *r, kp_ptr *pp, int flexible, int64_t least, int64_t after,
                                     const char *field, const char *layout) {
    kp_ptr start = *pp, p = start;
    int32_t n;
    if (flexible) {
        uint32_t v;
        p = kp_varint_slow(r, p, &v, field);
        if (p == NULL) return -1;
        n = (int32_t)(v - 1u);
    } else {
        if (r->end - p < 4) { kp_fault(r, KP_SHORT, p, 4, field); return -1; }
        n = kp_i32(p);
        p += 4;
    }
    if (n < 0) { kp_fault(r, KP_NULL, start, n, field); return -1; }
    if (n * least > r->end - p) { kp_fault(r, KP_SHORT_ARRAY, start, n, field); return -1; }
    if (n * least + after > r->end - p) { kp_fault_group(r, p + n * least, layout); return -1; }
    *pp = p;
    return n;
}

KP_INLINE int64_t kp_count(kp_reader *r, kp_ptr *pp, kp_ptr e, int flexible, int64_t least, int64_t after,
                           const char *field, const char *layout) {
    kp_ptr p = *pp;
    int64_t n, left = e - p;
    if (flexible) {
        if (KP_LIKELY(left > 0)) {
            n = (int64_t)kp_once(p) - 1;
            if (KP_LIKELY((uint64_t)n < 0x7f && n * least + after < left)) { *pp = p + 1; return n; }
        }
    } else if (KP_LIKELY(left >= 4)) {
        n = kp_i32(p);
        if (KP_LIKELY(n >= 0 && n * least + after <= left - 4)) { *pp = p + 4; return n; }
    }
    n = kp_count_slow(r, &p, flexible, least, after, field, layout);
    *pp = p;   /* through a variable of its own: the caller's stays in a register */
    return n;
}

/* ---- strings --------------------------------------------------------------------------------------------------- */

static inline int kp_is_ascii(kp_ptr p, int64_t n) {
    uint64_t bits = 0, word;
    while (n >= 8) { memcpy(&word, p, 8); bits |= word; p += 8; n -= 8; }
    while (n-- > 0) bits |= *p++;
    return (bits & 0x8080808080808080u) == 0;
}

/* The first byte that well-formed UTF-8 would not have, or NULL. */
static KP_COLD kp_ptr kp_bad_utf8(kp_ptr p, int64_t n) {
    kp_ptr e = p + n;
    while (p < e) {
        uint8_t b = *p;
        int more;
        uint8_t low = 0x80, high = 0xbf;
        if (b < 0x80) { p++; continue; }
        else if (b >= 0xc2 && b <= 0xdf) more = 1;
        else if (b >= 0xe0 && b <= 0xef) { more = 2; if (b == 0xe0) low = 0xa0; if (b == 0xed) high = 0x9f; }
        else if (b >= 0xf0 && b <= 0xf4) { more = 3; if (b == 0xf0) low = 0x90; if (b == 0xf4) high = 0x8f; }
        else return p;
        if (e - p <= more) return p;
        if (p[1] < low || p[1] > high) return p;
        for (int i = 2; i <= more; i++) if ((p[i] & 0xc0) != 0x80) return p;
        p += more + 1;
    }
    return NULL;
}

/* Ill-formed UTF-8 as Java reads it, into at most three times the bytes: U+FFFD for each longest beginning of a sequence,
 * else for each byte; of a surrogate's bytes (ED A0..BF and one more) for the whole. Gives the length. */
static KP_COLD int64_t kp_replace_utf8(uint8_t *to, kp_ptr p, int64_t n) {
    kp_ptr e = p + n;
    uint8_t *q = to;
    while (p < e) {
        uint8_t b = *p, low = 0x80, high = 0xbf;
        int more = b >= 0xc2 && b <= 0xdf ? 1 : b >= 0xe0 && b <= 0xef ? 2 : b >= 0xf0 && b <= 0xf4 ? 3 : 0;
        int got = 1;
        if (b < 0x80) { *q++ = b; p++; continue; }
        if (b == 0xe0) low = 0xa0;
        if (b == 0xf0) low = 0x90;
        if (b == 0xf4) high = 0x8f;
        if (more && e - p > 1 && p[1] >= low && p[1] <= high)
            for (got = 2; got <= more && e - p > got && (p[got] & 0xc0) == 0x80;) got++;
        if (more && got == more + 1 && !(b == 0xed && p[1] >= 0xa0)) {
            memcpy(q, p, (size_t)got);
            q += got;
        } else {
            q[0] = 0xef; q[1] = 0xbf; q[2] = 0xbd;
            q += 3;
        }
        p += got;
    }
    return q - to;
}

#define KP_MAX_STRING 32767

/* A string's bytes: *n long, -1 for null where it may be null; gives where they begin, or NULL after a fault. */
static KP_COLD kp_ptr kp_string_slow(kp_reader *r, kp_ptr p, int flexible, int nullable, int64_t *n, const char *field) {
    kp_ptr start = p;
    int32_t length;
    if (flexible) {
        uint32_t v;
        p = kp_varint_slow(r, p, &v, field);
        if (p == NULL) return NULL;
        length = (int32_t)(v - 1u);
    } else {
        if (r->end - p < 2) return kp_fault(r, KP_SHORT, p, 2, field);
        length = kp_i16(p);
        p += 2;
    }
    if (length < 0) {
        if (!nullable) return kp_fault(r, KP_NULL, start, length, field);
        if (r->strict && length != -1) return kp_fault(r, KP_STRICT_NULL, start, length, field);
        *n = -1;
        return p;
    }
    if (length > KP_MAX_STRING) return kp_fault(r, KP_STRING_LONG, start, length, field);
    if (length > r->end - p) return kp_fault(r, KP_SHORT_STRING, start, length, field);
    if (r->strict) {
        kp_ptr bad = kp_bad_utf8(p, length);
        if (bad != NULL) return kp_fault(r, KP_STRICT_UTF8, bad, *bad, field);
    }
    *n = length;
    return p;
}

KP_INLINE kp_ptr kp_string(kp_reader *r, kp_ptr p, kp_ptr e, int flexible, int nullable, int64_t *n,
                           const char *field) {
    if (KP_LIKELY(!r->strict)) {
        if (flexible) {
            if (KP_LIKELY(e > p)) {
                int64_t length = (int64_t)kp_once(p) - 1;
                if (KP_LIKELY((uint64_t)length < 0x7f && length < e - p)) { *n = length; return p + 1; }
            }
        } else if (KP_LIKELY(e - p >= 2)) {
            int16_t length = kp_i16(p);
            if (KP_LIKELY(length >= 0 && length <= e - p - 2)) { *n = length; return p + 2; }
        }
    }
    int64_t length = 0;
    p = kp_string_slow(r, p, flexible, nullable, &length, field);
    *n = length;
    return p;
}

/* ---- tagged fields --------------------------------------------------------------------------------------------- */

/* One tagged field's tag, size and data; gives where it ends. A size below zero (2^31 and more) is refused. */
static kp_ptr kp_tag(kp_reader *r, kp_ptr p, uint32_t *tag, uint32_t *size, kp_ptr *data) {
    kp_ptr start = p;
    p = kp_varint(r, p, r->end, tag, "unknown_tagged_fields");
    if (p == NULL) return NULL;
    p = kp_varint(r, p, r->end, size, "unknown_tagged_fields");
    if (p == NULL) return NULL;
    *data = p;
    if ((int32_t)*size < 0) return kp_fault(r, KP_TAG_NEGATIVE, start, (int32_t)*size, "unknown_tagged_fields");
    if ((int64_t)*size > r->end - p) return kp_fault(r, KP_SHORT_TAG, start, *size, "unknown_tagged_fields");
    return p + *size;
}

/* A struct's tagged section where no tag is known: gives its end, and where the fields begin and end (NULL: none). */
static KP_COLD kp_ptr kp_tags_slow(kp_reader *r, kp_ptr p, kp_ptr *from, kp_ptr *to) {
    uint32_t count, tag, size;
    int64_t last = -1;
    kp_ptr data, start = p;
    *from = *to = NULL;
    p = kp_varint(r, p, r->end, &count, "unknown_tagged_fields");
    if (p == NULL) return NULL;
    r->plain = 0;
    if ((int32_t)count < 0 && r->strict)
        return kp_fault(r, KP_STRICT_TAG_COUNT, start, (int32_t)count, "unknown_tagged_fields");
    if ((int32_t)count <= 0) return p;
    *from = p;
    for (; count; count--) {
        kp_ptr at = p;
        p = kp_tag(r, p, &tag, &size, &data);
        if (p == NULL) return NULL;
        if (r->strict && ((int64_t)tag <= last || tag > INT32_MAX))
            return kp_fault(r, KP_STRICT_TAG_ORDER, at, tag, "unknown_tagged_fields");
        last = tag;
    }
    *to = p;
    return p;
}

/* The same with the one-byte way for the empty section, which is nearly every one. */
KP_INLINE kp_ptr kp_tags(kp_reader *r, kp_ptr p, kp_ptr e, kp_ptr *from, kp_ptr *to) {
    if (KP_LIKELY(p < e && *p == 0)) { *from = *to = NULL; return p + 1; }
    kp_ptr begin, end;
    p = kp_tags_slow(r, p, &begin, &end);
    *from = begin;
    *to = end;
    return p;
}

/* A varint in kept bytes, which were checked before. */
static inline kp_ptr kp_own_varint(kp_ptr p, uint32_t *out) {
    uint32_t v = 0;
    int shift = 0;
    uint8_t b;
    do { b = *p++; v |= (uint32_t)(b & 0x7f) << shift; shift += 7; } while (b >= 0x80);
    *out = v;
    return p;
}

/* The size of kept tagged fields when written; -1 when the tags do not ascend, -2 when one is 2^31-1: Kafka writes neither. */
static inline int64_t kp_own_tags_size(kp_ptr p, int64_t length, uint32_t *count, int32_t *bad) {
    kp_ptr e = p + length;
    int64_t total = 0;
    int32_t last = -1;
    *count = 0;
    while (p < e) {
        uint32_t tag, size;
        p = kp_own_varint(p, &tag);
        p = kp_own_varint(p, &size);
        *bad = (int32_t)tag;
        if (tag == 0x7fffffffu) return -2;
        if ((int32_t)tag <= last) return -1;
        last = (int32_t)tag;
        total += kp_varint_size(tag) + kp_varint_size(size) + size;
        p += size;
        ++*count;
    }
    return total;
}

static inline uint8_t *kp_put_own_tags(uint8_t *q, kp_ptr p, int64_t length) {
    kp_ptr e = p + length;
    while (p < e) {
        uint32_t tag, size;
        p = kp_own_varint(p, &tag);
        p = kp_own_varint(p, &size);
        q = kp_put_varint(kp_put_varint(q, tag), size);
        memcpy(q, p, size);
        p += size;
        q += size;
    }
    return q;
}

#endif
