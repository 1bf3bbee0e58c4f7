/* Requests written straight from columns: sizes and checks in one pass, bytes in another, no interpreter in either. */
#ifndef KPROTO_COLUMNS_WRITE_H
#define KPROTO_COLUMNS_WRITE_H

#include "arrow.h"

/* Columns as they were handed in; every pointer is at the first row. */
typedef struct {
    int64_t rows;
    const int32_t *ints[KP_INTS];
    const int32_t *offsets[KP_LISTS], *ids[KP_LISTS];
    const uint8_t *flag;                       /* bits, from flag_at on */
    int64_t flag_at;
    const int8_t *recovery;
    const int32_t *codes, *id_codes;           /* into the dictionaries below; NULL: plain columns */
    const int32_t *name_ends;                  /* of strings with 32-bit offsets, or NULL and */
    const int64_t *long_name_ends;             /* of those with 64-bit offsets */
    const uint8_t *names, *topic_ids;          /* topic_ids NULL: all zero */
    int64_t names_count, ids_count;
} kp_view;

enum kp_trouble { KP_FINE, KP_BAD_OFFSETS, KP_BAD_CODE, KP_LONG_NAME, KP_RECOVERING, KP_MANY, KP_FLAGS_DIFFER };
typedef struct { enum kp_trouble what; int64_t row, value; } kp_problem;

static const uint8_t kp_zero_id[16] = {0};
static const int32_t kp_nothing[4] = {0};   /* stands for the buffers of columns without rows */

static inline int kp_flag(const kp_view *v, int64_t row) { return v->flag[(row + v->flag_at) >> 3] >> ((row + v->flag_at) & 7) & 1; }

static inline kp_ptr kp_view_name(const kp_view *v, int64_t row, int64_t *n) {
    int64_t at = v->codes ? v->codes[row] : row;
    if (v->name_ends) { *n = v->name_ends[at + 1] - v->name_ends[at]; return v->names + v->name_ends[at]; }
    *n = v->long_name_ends[at + 1] - v->long_name_ends[at];
    return v->names + v->long_name_ends[at];
}

static inline kp_ptr kp_view_id(const kp_view *v, int64_t row) {
    if (v->topic_ids == NULL) return kp_zero_id;
    return v->topic_ids + 16 * (v->id_codes ? v->id_codes[row] : row);
}

/* Where the run of rows ends that are of the same topic as row `from`. */
static inline int64_t kp_run(const kp_view *v, int64_t from) {
    int64_t i = from + 1, n, m;
    if (v->codes && (v->topic_ids == NULL || v->id_codes == v->codes)) {
        const int32_t *codes = v->codes, code = codes[from];
        while (i < v->rows && codes[i] == code) i++;
        return i;
    }
    kp_ptr name = kp_view_name(v, from, &n), id = kp_view_id(v, from), other;
    for (; i < v->rows; i++) {
        other = kp_view_name(v, i, &m);
        if (m != n || memcmp(other, name, (size_t)n) || memcmp(kp_view_id(v, i), id, 16)) break;
    }
    return i;
}

/* Our own columns as they stand. */
static void kp_view_of(const kp_batch *b, kp_view *v) {
    memset(v, 0, sizeof *v);
    v->rows = b->rows;
    for (int i = 0; i < KP_INTS; i++) v->ints[i] = b->ints[i];
    for (int k = 0; k < b->lists; k++) { v->offsets[k] = b->offsets[k]; v->ids[k] = b->ids[k]; }
    v->flag = b->flag;
    v->recovery = b->recovery;
    v->codes = v->id_codes = b->ints[KP_TOPIC];
    v->name_ends = b->name_ends;
    v->names = b->names;
    v->topic_ids = b->layout == KP_SR ? NULL : b->topic_ids;
    v->names_count = v->ids_count = b->topics;
}

static int64_t kp_problem_at(kp_problem *x, enum kp_trouble what, int64_t row, int64_t value) {
    x->what = what;
    x->row = row;
    x->value = value;
    return -1;
}

/* The ids of one list column with the lengths in front; -1 where the offsets do not ascend. */
static inline int64_t kp_list_size(const kp_view *v, int k, int flexible, kp_problem *x) {
    const int32_t *o = v->offsets[k];
    int64_t total = flexible ? v->rows : 4 * v->rows;
    int32_t descends = 0;
    for (int64_t i = 0; i < v->rows; i++) {
        int32_t n = o[i + 1] - o[i];
        descends |= n;
        if (flexible && n >= 127) total += kp_varint_size((uint32_t)n + 1) - 1;
    }
    if (descends < 0) return kp_problem_at(x, KP_BAD_OFFSETS, 0, k);
    return total + 4 * (int64_t)(o[v->rows] - o[0]);
}

/* What the topics' names and ids take, with the counts and tagged sections of their groups; `topics` counts the groups. */
static int64_t kp_groups_size(const kp_view *v, int flexible, int with_id, int with_count, int64_t *topics, kp_problem *x) {
    int64_t total = 0, n, i, next;
    *topics = 0;
    for (i = 0; i < v->rows; i = next, ++*topics) {
        if (v->codes && (v->codes[i] < 0 || v->codes[i] >= v->names_count)) return kp_problem_at(x, KP_BAD_CODE, i, v->codes[i]);
        if (v->topic_ids && v->id_codes && (v->id_codes[i] < 0 || v->id_codes[i] >= v->ids_count))
            return kp_problem_at(x, KP_BAD_CODE, i, v->id_codes[i]);
        next = with_count ? kp_run(v, i) : i + 1;
        kp_view_name(v, i, &n);
        if (n > KP_MAX_STRING) return kp_problem_at(x, KP_LONG_NAME, i, n);
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

static inline uint8_t *kp_put_name(uint8_t *q, const kp_view *v, int64_t row, int flexible) {
    int64_t n;
    kp_ptr name = kp_view_name(v, row, &n);
    if (flexible) q = kp_put_varint(q, (uint32_t)n + 1);
    else { kp_put16(q, (int16_t)n); q += 2; }
    memcpy(q, name, (size_t)n);
    return q + n;
}

static inline uint8_t *kp_put_list(uint8_t *q, const kp_view *v, int k, int64_t row, int flexible) {
    int32_t from = v->offsets[k][row], n = v->offsets[k][row + 1] - from;
    if (flexible && KP_LIKELY(n < 127)) *q++ = (uint8_t)(n + 1);
    else q = kp_put_count(q, n, flexible);
    return kp_put_ids(q, v->ids[k] + from, n);
}

/* ---- UpdateMetadata and LeaderAndIsr ---------------------------------------------------------------------------------- */

/* Without the count of the groups, which stands in front of them: they may be written in several parts. */
static int64_t kp_states_size(const kp_view *v, int umr, int version, int64_t *groups, kp_problem *x) {
    const int flexible = version >= (umr ? 6 : 4), grouped = version >= (umr ? 5 : 2);
    const int lists = umr ? (version >= 4 ? 3 : 2) : (version >= 3 ? 4 : 2);
    int64_t topics, total, part;
    x->what = KP_FINE;
    if (v->rows >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, 0, v->rows);
    total = kp_groups_size(v, flexible, version >= (umr ? 7 : 5), grouped, &topics, x);
    if (total < 0) return -1;
    total += v->rows * (20 + flexible + (umr ? 0 : (version >= 1) + (version >= 6)));
    for (int k = 0; k < lists; k++) {
        part = kp_list_size(v, k, flexible, x);
        if (part < 0) return -1;
        total += part;
    }
    if (!umr && version < 6)
        for (int64_t i = 0; i < v->rows; i++)
            if (v->recovery[i]) return kp_problem_at(x, KP_RECOVERING, i, v->recovery[i]);
    *groups = grouped ? topics : v->rows;
    return total;
}

static inline __attribute__((always_inline)) uint8_t *kp_put_states(uint8_t *q, const kp_view *v, const int umr, int version) {
    const int flexible = version >= (umr ? 6 : 4), grouped = version >= (umr ? 5 : 2);
    int64_t i = 0, next;
    while (i < v->rows) {
        next = v->rows;
        if (grouped) {
            next = kp_run(v, i);
            q = kp_put_name(q, v, i, flexible);
            if (version >= (umr ? 7 : 5)) { memcpy(q, kp_view_id(v, i), 16); q += 16; }
            q = kp_put_count(q, next - i, flexible);
        }
        for (; i < next; i++) {
            if (!grouped) q = kp_put_name(q, v, i, 0);
            kp_put32(q, v->ints[KP_PARTITION][i]);
            kp_put32(q + 4, v->ints[KP_CONTROLLER_EPOCH][i]);
            kp_put32(q + 8, v->ints[KP_LEADER][i]);
            kp_put32(q + 12, v->ints[KP_LEADER_EPOCH][i]);
            q = kp_put_list(q + 16, v, 0, i, flexible);
            kp_put32(q, v->ints[KP_PARTITION_EPOCH][i]);
            q = kp_put_list(q + 4, v, 1, i, flexible);
            if (umr) {
                if (version >= 4) q = kp_put_list(q, v, 2, i, flexible);
            } else {
                if (version >= 3) q = kp_put_list(kp_put_list(q, v, 2, i, flexible), v, 3, i, flexible);
                if (version >= 1) *q++ = (uint8_t)kp_flag(v, i);
                if (version >= 6) *q++ = (uint8_t)v->recovery[i];
            }
            if (flexible) *q++ = 0;
        }
        if (grouped && flexible) *q++ = 0;
    }
    return q;
}

static uint8_t *kp_put_umr_states(uint8_t *q, const kp_view *v, int version) { return kp_put_states(q, v, 1, version); }
static uint8_t *kp_put_lisr_states(uint8_t *q, const kp_view *v, int version) { return kp_put_states(q, v, 0, version); }

/* ---- StopReplica ------------------------------------------------------------------------------------------------------ */

static int64_t kp_stops_size(const kp_view *v, int version, int delete_partitions, int64_t *groups, kp_problem *x) {
    const int flexible = version >= 2;
    int64_t topics, total;
    x->what = KP_FINE;
    if (v->rows >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, 0, v->rows);
    total = kp_groups_size(v, flexible, 0, version >= 1, &topics, x);
    if (total < 0) return -1;
    if (version <= 2)
        for (int64_t i = 0; i < v->rows; i++)
            if (kp_flag(v, i) != delete_partitions) return kp_problem_at(x, KP_FLAGS_DIFFER, i, 0);
    *groups = version >= 1 ? topics : v->rows;
    return total + v->rows * (version >= 3 ? 10 : 4);
}

static uint8_t *kp_put_stops(uint8_t *q, const kp_view *v, int version) {
    const int flexible = version >= 2;
    int64_t i = 0, next;
    while (i < v->rows) {
        next = version >= 1 ? kp_run(v, i) : i + 1;
        q = kp_put_name(q, v, i, flexible);
        if (version >= 1) q = kp_put_count(q, next - i, flexible);
        for (; i < next; i++) {
            kp_put32(q, v->ints[KP_PARTITION][i]);
            q += 4;
            if (version >= 3) {
                kp_put32(q, v->ints[KP_LEADER_EPOCH][i]);
                q[4] = (uint8_t)kp_flag(v, i);
                q[5] = 0;
                q += 6;
            }
        }
        if (flexible) *q++ = 0;
    }
    return q;
}

#endif
