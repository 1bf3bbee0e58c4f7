/* Requests written straight from columns: sizes and checks in one pass, bytes in another, no interpreter in either. */
#ifndef KPROTO_COLUMNS_WRITE_H
#define KPROTO_COLUMNS_WRITE_H

#include "arrow_read.h"

static inline int kp_flag(const kp_batch *b, int64_t row) { return b->flag[row >> 3] >> (row & 7) & 1; }

static inline kp_ptr kp_name_of(const kp_batch *b, int64_t row, int64_t *n) {
    const int32_t *end = b->name_ends + b->ints[KP_TOPIC][row];
    *n = end[1] - end[0];
    return b->names + end[0];
}

/* Where the run of rows ends that are of the same topic as row `from`. */
static inline int64_t kp_run(const kp_batch *b, int64_t from) {
    const int32_t *codes = b->ints[KP_TOPIC], code = codes[from];
    int64_t i = from + 1;
    while (i < b->rows && codes[i] == code) i++;
    return i;
}

/* The ids of one list column with the lengths in front. */
static inline int64_t kp_list_size(const kp_batch *b, int k, int flexible) {
    const int32_t *o = b->offsets[k];
    int64_t total = flexible ? b->rows : 4 * b->rows;
    if (flexible)
        for (int64_t i = 0; i < b->rows; i++)
            if (o[i + 1] - o[i] >= 127) total += kp_varint_size((uint32_t)(o[i + 1] - o[i]) + 1) - 1;
    return total + 4 * (int64_t)o[b->rows];
}

/* What the topics' names and ids take, with the counts and tagged sections of their groups; `topics` counts the groups. */
static int64_t kp_groups_size(const kp_batch *b, int flexible, int with_id, int with_count, int64_t *topics, kp_problem *x) {
    int64_t total = 0, n, i, next;
    *topics = 0;
    for (i = 0; i < b->rows; i = next, ++*topics) {
        next = with_count ? kp_run(b, i) : i + 1;
        kp_name_of(b, i, &n);
        if (n > KP_MAX_STRING) return kp_problem_at(x, KP_LONG_NAME, "topic", i, n);
        total += n + (flexible ? kp_varint_size((uint32_t)n + 1) : 2);
        if (with_count) total += (with_id ? 16 : 0) + (flexible ? kp_varint_size((uint32_t)(next - i) + 1) + 1 : 4);
    }
    return total;
}

static inline uint8_t *kp_put_count(uint8_t *q, int64_t n, int flexible) {
    if (flexible) return kp_put_varint(q, (uint32_t)n + 1);
    kp_put32(q, (int32_t)n);
    return q + 4;
}

static inline uint8_t *kp_put_name(uint8_t *q, const kp_batch *b, int64_t row, int flexible) {
    int64_t n;
    kp_ptr name = kp_name_of(b, row, &n);
    if (flexible) q = kp_put_varint(q, (uint32_t)n + 1);
    else { kp_put16(q, (int16_t)n); q += 2; }
    memcpy(q, name, (size_t)n);
    return q + n;
}

static inline uint8_t *kp_put_list(uint8_t *q, const kp_batch *b, int k, int64_t row, int flexible) {
    int32_t from = b->offsets[k][row], n = b->offsets[k][row + 1] - from;
    if (flexible && KP_LIKELY(n < 127)) *q++ = (uint8_t)(n + 1);
    else q = kp_put_count(q, n, flexible);
    return kp_put_ids(q, b->ids[k] + from, n);
}

/* ---- UpdateMetadata and LeaderAndIsr ---------------------------------------------------------------------------------- */

/* Without the count of the groups, which stands in front of them: they may be written in several parts. */
static int64_t kp_states_size(const kp_batch *b, int umr, int version, int64_t *groups, kp_problem *x) {
    const int flexible = version >= (umr ? 6 : 4), grouped = version >= (umr ? 5 : 2);
    const int lists = umr ? (version >= 4 ? 3 : 2) : (version >= 3 ? 4 : 2);
    int64_t topics, total;
    x->trouble = KP_FINE;
    if (b->rows >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, "", 0, b->rows);
    total = kp_groups_size(b, flexible, version >= (umr ? 7 : 5), grouped, &topics, x);
    if (total < 0) return -1;
    total += b->rows * (20 + flexible + (umr ? 0 : (version >= 1) + (version >= 6)));
    for (int k = 0; k < lists; k++) total += kp_list_size(b, k, flexible);
    if (!umr && version < 6)
        for (int64_t i = 0; i < b->rows; i++)
            if (b->recovery[i]) return kp_problem_at(x, KP_RECOVERING, "", i, b->recovery[i]);
    *groups = grouped ? topics : b->rows;
    return total;
}

static inline __attribute__((always_inline)) uint8_t *kp_put_states(uint8_t *q, const kp_batch *b, const int umr, int version) {
    const int flexible = version >= (umr ? 6 : 4), grouped = version >= (umr ? 5 : 2);
    int64_t i = 0, next;
    while (i < b->rows) {
        next = b->rows;
        if (grouped) {
            next = kp_run(b, i);
            q = kp_put_name(q, b, i, flexible);
            if (version >= (umr ? 7 : 5)) { memcpy(q, b->topic_ids + 16 * (int64_t)b->ints[KP_TOPIC][i], 16); q += 16; }
            q = kp_put_count(q, next - i, flexible);
        }
        for (; i < next; i++) {
            if (!grouped) q = kp_put_name(q, b, i, 0);
            kp_put32(q, b->ints[KP_PARTITION][i]);
            kp_put32(q + 4, b->ints[KP_CONTROLLER_EPOCH][i]);
            kp_put32(q + 8, b->ints[KP_LEADER][i]);
            kp_put32(q + 12, b->ints[KP_LEADER_EPOCH][i]);
            q = kp_put_list(q + 16, b, 0, i, flexible);
            kp_put32(q, b->ints[KP_PARTITION_EPOCH][i]);
            q = kp_put_list(q + 4, b, 1, i, flexible);
            if (umr) {
                if (version >= 4) q = kp_put_list(q, b, 2, i, flexible);
            } else {
                if (version >= 3) q = kp_put_list(kp_put_list(q, b, 2, i, flexible), b, 3, i, flexible);
                if (version >= 1) *q++ = (uint8_t)kp_flag(b, i);
                if (version >= 6) *q++ = (uint8_t)b->recovery[i];
            }
            if (flexible) *q++ = 0;
        }
        if (grouped && flexible) *q++ = 0;
    }
    return q;
}

static uint8_t *kp_put_umr_states(uint8_t *q, const kp_batch *b, int version) { return kp_put_states(q, b, 1, version); }
static uint8_t *kp_put_lisr_states(uint8_t *q, const kp_batch *b, int version) { return kp_put_states(q, b, 0, version); }

/* ---- StopReplica ------------------------------------------------------------------------------------------------------ */

static int64_t kp_stops_size(const kp_batch *b, int version, int delete_partitions, int64_t *groups, kp_problem *x) {
    const int flexible = version >= 2;
    int64_t topics, total;
    x->trouble = KP_FINE;
    if (b->rows >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, "", 0, b->rows);
    total = kp_groups_size(b, flexible, 0, version >= 1, &topics, x);
    if (total < 0) return -1;
    if (version <= 2)
        for (int64_t i = 0; i < b->rows; i++)
            if (kp_flag(b, i) != delete_partitions) return kp_problem_at(x, KP_FLAGS_DIFFER, "", i, 0);
    *groups = version >= 1 ? topics : b->rows;
    return total + b->rows * (version >= 3 ? 10 : 4);
}

static uint8_t *kp_put_stops(uint8_t *q, const kp_batch *b, int version) {
    const int flexible = version >= 2;
    int64_t i = 0, next;
    while (i < b->rows) {
        next = version >= 1 ? kp_run(b, i) : i + 1;
        q = kp_put_name(q, b, i, flexible);
        if (version >= 1) q = kp_put_count(q, next - i, flexible);
        for (; i < next; i++) {
            kp_put32(q, b->ints[KP_PARTITION][i]);
            q += 4;
            if (version >= 3) {
                kp_put32(q, b->ints[KP_LEADER_EPOCH][i]);
                q[4] = (uint8_t)kp_flag(b, i);
                q[5] = 0;
                q += 6;
            }
        }
        if (flexible) *q++ = 0;
    }
    return q;
}

#endif
