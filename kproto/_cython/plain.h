/* Live brokers and live leaders in the plain form: Kafka itself would write them byte for byte as they are.
 *
 * Every request has such a list, and few callers read it, so the list is kept as bytes until its field is read. For a
 * list that is not plain (an overlong varint, text beyond ASCII, a tagged field, a length of 127 or more) the functions
 * return NULL; the caller then reads it at once, with all checks and faults.
 */
#ifndef KPROTO_PLAIN_H
#define KPROTO_PLAIN_H

#include "wire.h"

static inline kp_ptr kp_plain_string(kp_ptr p, kp_ptr e, int flexible, int nullable) {
    int64_t n;
    if (flexible) {
        if (e - p < 1) return NULL;
        n = (int64_t)kp_once(p) - 1;
        p += 1;
    } else {
        if (e - p < 2) return NULL;
        n = kp_i16(p);
        p += 2;
    }
    if (n == -1 && nullable) return p;
    if ((uint64_t)n >= 127 || n > e - p || !kp_is_ascii(p, n)) return NULL;
    return p + n;
}

static kp_ptr kp_plain_brokers(kp_ptr p, kp_ptr e, int64_t brokers, int version) {
    const int flexible = version >= 6;
    while (brokers-- > 0) {
        int64_t endpoints;
        if (e - p < 8) return NULL;
        p += 4;
        if (version == 0) {
            p = kp_plain_string(p, e, 0, 0);
            if (p == NULL || e - p < 4) return NULL;
            p += 4;
            continue;
        }
        if (flexible) {
            endpoints = (int64_t)kp_once(p) - 1;
            p += 1;
        } else {
            endpoints = kp_i32(p);
            p += 4;
        }
        if ((uint64_t)endpoints >= 127) return NULL;
        while (endpoints-- > 0) {
            if (e - p < 4) return NULL;
            p = kp_plain_string(p + 4, e, flexible, 0);
            if (p != NULL && version >= 3) p = kp_plain_string(p, e, flexible, 0);
            if (p == NULL || e - p < 2 + flexible) return NULL;
            p += 2;
            if (flexible && kp_once(p++) != 0) return NULL;
        }
        if (version >= 2) {
            p = kp_plain_string(p, e, flexible, 1);
            if (p == NULL) return NULL;
        }
        if (flexible) {
            if (e - p < 1 || kp_once(p) != 0) return NULL;
            p += 1;
        }
    }
    return p;
}

static kp_ptr kp_plain_leaders(kp_ptr p, kp_ptr e, int64_t leaders, int flexible) {
    while (leaders-- > 0) {
        if (e - p < 4) return NULL;
        p = kp_plain_string(p + 4, e, flexible, 0);
        if (p == NULL || e - p < 4 + flexible) return NULL;
        p += 4;
        if (flexible && kp_once(p++) != 0) return NULL;
    }
    return p;
}

#endif
