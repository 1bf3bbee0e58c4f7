/* Reads partition rows from the wire into a batch of columns, or (without a batch) only checks them. */
#ifndef KPROTO_COLUMNS_READ_H
#define KPROTO_COLUMNS_READ_H

#include "columns.h"

static inline void kp_fill(int32_t *to, int64_t n, int32_t value) { for (int64_t i = 0; i < n; i++) to[i] = value; }

/* ---- UpdateMetadata and LeaderAndIsr ---------------------------------------------------------------------------------- */

KP_INLINE kp_ptr kp_check_rows(kp_reader *r, kp_ptr p, int64_t n, const int umr, const int version, const char *field) {
    kp_ptr e = r->end;
    kp_row row;
    for (int64_t j = 0; j < n; j++) {
        p = kp_read_row(r, p, e, umr, version, &row);
        if (p == NULL) return kp_inside(r, field, j);
        if (!kp_grouped(umr, version) && !kp_is_ascii(row.name, row.name_length)) r->plain = 0;
    }
    return p;
}

/* The state of a list column in variables of its own: an array of them would not stay in registers. */
#define KP_LIST_LOCALS(k) int32_t *ids##k = b->ids[k], *ends##k = b->offsets[k] ? b->offsets[k] + first + 1 : NULL; int64_t used##k = b->used[k];
#define KP_LIST_KEEP(k) { kp_ids_loose(ids##k + used##k, row.ids[k], row.n[k], e); used##k += row.n[k]; ends##k[j] = (int32_t)used##k; }
#define KP_LIST_DONE(k) b->used[k] = used##k;

/* n rows of topic `code`, or (ungrouped) each with its own name. */
KP_INLINE kp_ptr kp_rows(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, const int umr, const int version, int64_t code, const char *field) {
    kp_ptr e = r->end;
    kp_row row;
    const int ungrouped = !kp_grouped(umr, version);
    const int64_t first = b->rows;
    int32_t *partition = b->ints[KP_PARTITION], *controller_epoch = b->ints[KP_CONTROLLER_EPOCH], *leader = b->ints[KP_LEADER];
    int32_t *leader_epoch = b->ints[KP_LEADER_EPOCH], *partition_epoch = b->ints[KP_PARTITION_EPOCH], *topic = b->ints[KP_TOPIC];
    uint8_t *flag = b->flag;
    int8_t *recovery = b->recovery;
    KP_LIST_LOCALS(0) KP_LIST_LOCALS(1) KP_LIST_LOCALS(2) KP_LIST_LOCALS(3)
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = first + j;
        p = kp_read_row(r, p, e, umr, version, &row);
        if (p == NULL) return kp_inside(r, field, j);
        if (ungrouped) {
            code = kp_row_topic(r, b, row.name, row.name_length, code);
            if (code < 0) return kp_inside(r, field, j);
            topic[at] = (int32_t)code;
        }
        partition[at] = row.partition;
        controller_epoch[at] = row.controller_epoch;
        leader[at] = row.leader;
        leader_epoch[at] = row.leader_epoch;
        partition_epoch[at] = row.partition_epoch;
        KP_LIST_KEEP(0) KP_LIST_KEEP(1) KP_LIST_KEEP(2)
        if (!umr) KP_LIST_KEEP(3)
        if (!umr) { flag[at] = row.is_new; recovery[at] = row.recovery; }
    }
    if (!ungrouped) kp_fill(topic + first, n, (int32_t)code);
    b->rows = first + n;
    KP_LIST_DONE(0) KP_LIST_DONE(1) KP_LIST_DONE(2) KP_LIST_DONE(3)
    return p;
}

/* n topics or (ungrouped) rows; gives where they end. */
KP_INLINE kp_ptr kp_states(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, const int umr, const int version) {
    kp_ptr e = r->end, from, to;
    kp_topic_head topic;
    int64_t i, code = -1;
    if (b && kp_reserve_rows(r, b, p, kp_least_row(umr, version))) return NULL;
    if (!kp_grouped(umr, version))
        return b ? kp_rows(r, b, p, n, umr, version, code, "ungrouped_partition_states")
                 : kp_check_rows(r, p, n, umr, version, "ungrouped_partition_states");
    if (b && n < 65536 && kp_reserve_topics(b, b->topics + n)) return kp_fault(r, KP_NO_MEMORY, p, 0, "");
    for (i = 0; i < n; i++) {
        p = kp_read_topic(r, p, e, umr, version, &topic);
        if (p == NULL) break;
        if (b) {
            uint8_t id[16];
            if (topic.id) memcpy(id, topic.id, 16);
            code = kp_topic(r, b, topic.name, topic.name_length, topic.id ? id : NULL, code);
            if (code < 0) break;
            p = kp_rows(r, b, p, topic.rows, umr, version, code, "partition_states");
        } else {
            if (!kp_is_ascii(topic.name, topic.name_length)) r->plain = 0;
            p = kp_check_rows(r, p, topic.rows, umr, version, "partition_states");
        }
        if (p != NULL && kp_flexible(umr, version)) p = kp_tags(r, p, e, &from, &to);
        if (p == NULL) break;
    }
    return i < n ? kp_inside(r, "topic_states", i) : p;
}

#define KP_WORK(form) return kp_states(r, b, p, n, 1, form)
static kp_ptr kp_umr_states(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int version) { KP_UMR_FORMS(version, KP_WORK) }
#undef KP_WORK
#define KP_WORK(form) return kp_states(r, b, p, n, 0, form)
static kp_ptr kp_lisr_states(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int version) { KP_LISR_FORMS(version, KP_WORK) }
#undef KP_WORK
#define KP_WORK(form) return kp_states(r, NULL, p, n, 1, form)
static kp_ptr kp_check_umr_states(kp_reader *r, kp_ptr p, int64_t n, int version) { KP_UMR_FORMS(version, KP_WORK) }
#undef KP_WORK
#define KP_WORK(form) return kp_states(r, NULL, p, n, 0, form)
static kp_ptr kp_check_lisr_states(kp_reader *r, kp_ptr p, int64_t n, int version) { KP_LISR_FORMS(version, KP_WORK) }
#undef KP_WORK
static int64_t kp_umr_count(kp_reader *r, kp_ptr *p, int version) { return kp_read_states_count(r, p, 1, version); }
static int64_t kp_lisr_count(kp_reader *r, kp_ptr *p, int version) { return kp_read_states_count(r, p, 0, version); }

/* ---- StopReplica ------------------------------------------------------------------------------------------------------ */

/* n partition states of version 3 or later, into three arrays or (NULL) checked alone. */
KP_INLINE kp_ptr kp_stop_rows(kp_reader *r, kp_ptr p, int64_t n, int32_t *partition, int32_t *leader_epoch, uint8_t *flag) {
    kp_ptr e = r->end;
    kp_stop row;
    if (partition && !r->strict && e - p >= 10 * n) {
        uint8_t odd = 0;                              /* all rows in one go, as long as none has tags */
        for (int64_t j = 0; j < n; j++) {
            partition[j] = kp_i32(p + 10 * j);
            leader_epoch[j] = kp_i32(p + 10 * j + 4);
            flag[j] = p[10 * j + 8] != 0;
            odd |= p[10 * j + 9];
        }
        if (KP_LIKELY(odd == 0)) return p + 10 * n;
    }
    for (int64_t j = 0; j < n; j++) {
        p = kp_read_stop(r, p, e, &row);
        if (p == NULL) return kp_inside(r, "partition_states", j);
        if (partition) { partition[j] = row.partition; leader_epoch[j] = row.leader_epoch; flag[j] = row.flag; }
    }
    return p;
}

/* n topics (version 0: partitions) to stop. Below version 3 the flag is the request's. */
KP_INLINE kp_ptr kp_stops(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int version, uint8_t delete_partitions) {
    kp_ptr e = r->end, from, to;
    kp_topic_head topic;
    int64_t i, code = -1;
    if (b && kp_reserve_rows(r, b, p, version >= 3 ? 10 : 4)) return NULL;
    if (b && n < 65536 && kp_reserve_topics(b, b->topics + n)) return kp_fault(r, KP_NO_MEMORY, p, 0, "");
    for (i = 0; i < n; i++) {
        p = kp_read_stop_topic(r, p, e, version, &topic);
        if (p == NULL) break;
        if (b) {
            const int64_t row = b->rows;
            code = kp_row_topic(r, b, topic.name, topic.name_length, code);
            if (code < 0) break;
            if (version <= 2) {
                kp_ids(b->ints[KP_PARTITION] + row, p, topic.rows);
                kp_fill(b->ints[KP_LEADER_EPOCH] + row, topic.rows, -1);
                memset(b->flag + row, delete_partitions, (size_t)topic.rows);
                p += 4 * topic.rows;
            } else p = kp_stop_rows(r, p, topic.rows, b->ints[KP_PARTITION] + row, b->ints[KP_LEADER_EPOCH] + row, b->flag + row);
            if (p == NULL) break;
            kp_fill(b->ints[KP_TOPIC] + row, topic.rows, (int32_t)code);
            b->rows += topic.rows;
        } else {
            if (!kp_is_ascii(topic.name, topic.name_length)) r->plain = 0;
            p = version <= 2 ? p + 4 * topic.rows : kp_stop_rows(r, p, topic.rows, NULL, NULL, NULL);
        }
        if (p != NULL && version >= 2) p = kp_tags(r, p, e, &from, &to);
        if (p == NULL) break;
    }
    return i < n ? kp_inside(r, kp_stops_field(version), i) : p;
}

static kp_ptr kp_sr_states(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int version, uint8_t delete_partitions) {
    return kp_stops(r, b, p, n, version, delete_partitions);
}
static kp_ptr kp_check_sr_states(kp_reader *r, kp_ptr p, int64_t n, int version) { return kp_stops(r, NULL, p, n, version, 0); }
static int64_t kp_sr_count(kp_reader *r, kp_ptr *p, int version) { return kp_read_stops_count(r, p, version); }

/* ---- partition errors in responses ------------------------------------------------------------------------------------ */

/* n partition errors, by name or of topic `code`. */
static kp_ptr kp_error_rows(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int flexible, int named, int64_t code) {
    kp_ptr e = r->end;
    kp_error row;
    for (int64_t j = 0; j < n; j++) {
        p = kp_read_error(r, p, e, flexible, named, &row);
        if (p != NULL && named) code = kp_row_topic(r, b, row.name, row.name_length, code);
        if (p == NULL || code < 0) return kp_inside(r, "partition_errors", j);
        b->ints[KP_TOPIC][b->rows] = (int32_t)code;
        b->ints[KP_PARTITION][b->rows] = row.partition;
        b->error[b->rows++] = row.error_code;
    }
    return p;
}

/* The partition errors of a LeaderAndIsr (by_id: version 5 and later) or StopReplica response, from their count on. */
static kp_ptr kp_errors(kp_reader *r, kp_batch *b, kp_ptr p, int flexible, int by_id) {
    kp_ptr e = r->end, from, to;
    int64_t i, n, topics, code = -1;
    if (!by_id) {
        n = kp_count(r, &p, e, flexible, 8, flexible, "partition_errors", "unknown_tagged_fields:1");
        if (n < 0 || kp_reserve_rows(r, b, p, 7)) return NULL;
        return kp_error_rows(r, b, p, n, flexible, 1, code);
    }
    topics = kp_count(r, &p, e, 1, 18, 1, "topics", "unknown_tagged_fields:1");
    if (topics < 0 || kp_reserve_rows(r, b, p, 7)) return NULL;
    for (i = 0; i < topics; i++) {
        uint8_t id[16];
        if (e - p < 17) { kp_fault_group(r, p, "topic_id:16,partition_errors:1"); break; }
        memcpy(id, p, 16);
        p += 16;
        code = kp_topic(r, b, NULL, 0, id, code);
        if (code < 0) break;
        n = kp_count(r, &p, e, 1, 7, 1, "partition_errors", "unknown_tagged_fields:1");
        if (n < 0) break;
        p = kp_error_rows(r, b, p, n, 1, 0, code);
        if (p != NULL) p = kp_tags(r, p, e, &from, &to);
        if (p == NULL) break;
    }
    return i < topics ? kp_inside(r, "topics", i) : p;
}

#endif
