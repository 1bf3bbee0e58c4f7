/* Writes requests straight from columns: sizes and checks in one pass, bytes in another, no interpreter in either. */
#ifndef KPROTO_COLUMNS_WRITE_H
#define KPROTO_COLUMNS_WRITE_H

#include "arrow_read.h"

static inline int kp_flag(const kp_batch *b, int64_t row) { return b->flag[row >> 3] >> (row & 7) & 1; }

static inline kp_ptr kp_name_of(const kp_batch *b, int64_t row, int64_t *n) {
    const int32_t *end = b->name_ends + b->ints[KP_TOPIC][row];
    *n = end[1] - end[0];
    return b->names + end[0];
}

/* The end of the run of rows that have the topic of row `from`. */
static inline int64_t kp_run(const kp_batch *b, int64_t from) {
    const int32_t *codes = b->ints[KP_TOPIC], code = codes[from];
    int64_t i = from + 1;
    while (i < b->rows && codes[i] == code) i++;
    return i;
}

/* The size of the topics' names and ids, with the counts and tagged sections of their groups; `topics` counts the groups. */
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

static inline uint8_t *kp_put_name(uint8_t *q, const kp_batch *b, int64_t row, int flexible) {
    int64_t n;
    kp_ptr name = kp_name_of(b, row, &n);
    if (flexible) q = kp_put_varint(q, (uint32_t)n + 1);
    else { kp_put16(q, (int16_t)n); q += 2; }
    memcpy(q, name, (size_t)n);
    return q + n;
}

/* ---- UpdateMetadata and LeaderAndIsr ---------------------------------------------------------------------------------- */

static int64_t kp_rows_size(const kp_batch *b, int umr, int version) {
    static const int32_t none[KP_LISTS] = {0};
    int64_t total = b->rows * kp_row_size(none, umr, version);
    for (int k = 0; k < kp_lists(umr, version); k++) {
        const int32_t *o = b->offsets[k];
        total += 4 * (int64_t)o[b->rows];
        for (int64_t i = 0; kp_flexible(umr, version) && i < b->rows; i++)
            if (o[i + 1] - o[i] >= 127) total += kp_varint_size((uint32_t)(o[i + 1] - o[i]) + 1) - 1;
    }
    return total;
}

/* Without the count of the groups, which precedes them: they may be written in several parts. */
static int64_t kp_states_size(const kp_batch *b, int umr, int version, int64_t *groups, kp_problem *x) {
    const int grouped = kp_grouped(umr, version);
    int64_t topics, total;
    x->trouble = KP_FINE;
    if (b->rows >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, "", 0, b->rows);
    total = kp_groups_size(b, kp_flexible(umr, version), kp_with_id(umr, version), grouped, &topics, x);
    if (total < 0) return -1;
    if (!umr && version < 6)
        for (int64_t i = 0; i < b->rows; i++)
            if (b->recovery[i]) return kp_problem_at(x, KP_RECOVERING, "", i, b->recovery[i]);
    *groups = grouped ? topics : b->rows;
    return total + kp_rows_size(b, umr, version);
}

KP_INLINE uint8_t *kp_put_states(uint8_t *q, const kp_batch *b, const int umr, const int version) {
    const int flexible = kp_flexible(umr, version), grouped = kp_grouped(umr, version), lists = kp_lists(umr, version);
    int64_t i = 0, next;
    int32_t head[4];
    kp_state row;
    row.head = head;
    for (int k = 0; k < lists; k++) row.ids[k] = b->ids[k];
    while (i < b->rows) {
        next = b->rows;
        if (grouped) {
            next = kp_run(b, i);
            q = kp_put_name(q, b, i, flexible);
            if (kp_with_id(umr, version)) { memcpy(q, b->topic_ids + 16 * (int64_t)b->ints[KP_TOPIC][i], 16); q += 16; }
            q = kp_put_count(q, next - i, flexible);
        }
        for (; i < next; i++) {
            if (!grouped) q = kp_put_name(q, b, i, 0);
            head[0] = b->ints[KP_PARTITION][i];
            head[1] = b->ints[KP_CONTROLLER_EPOCH][i];
            head[2] = b->ints[KP_LEADER][i];
            head[3] = b->ints[KP_LEADER_EPOCH][i];
            row.partition_epoch = b->ints[KP_PARTITION_EPOCH][i];
            for (int k = 0; k < lists; k++) row.n[k] = b->offsets[k][i + 1] - b->offsets[k][i];
            if (!umr) { row.is_new = (uint8_t)kp_flag(b, i); row.recovery = b->recovery[i]; }
            q = kp_put_row(q, &row, umr, version);
            for (int k = 0; k < lists; k++) row.ids[k] += row.n[k];
            if (flexible) *q++ = 0;
        }
        if (grouped && flexible) *q++ = 0;
    }
    return q;
}

#define KP_WORK(form) return kp_put_states(q, b, 1, form)
static uint8_t *kp_put_umr_states(uint8_t *q, const kp_batch *b, int version) { KP_UMR_FORMS(version, KP_WORK) }
#undef KP_WORK
#define KP_WORK(form) return kp_put_states(q, b, 0, form)
static uint8_t *kp_put_lisr_states(uint8_t *q, const kp_batch *b, int version) { KP_LISR_FORMS(version, KP_WORK) }
#undef KP_WORK

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
