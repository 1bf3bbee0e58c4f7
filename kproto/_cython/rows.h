/* The grammar of a partition's row in each message: reads, sizes and writes the rows of objects and columns alike.
 *
 * Everything is inlined; where the version is a constant, the code of other versions is removed. Versions whose requests
 * share the form of topics and rows are replaced by the highest of them, kp_form.
 */
#ifndef KPROTO_ROWS_H
#define KPROTO_ROWS_H

#include "wire.h"

enum { KP_LISTS = 4 };   /* isr, replicas, then offline | adding and removing replicas */

static inline int kp_umr_form(int version) { return version <= 3 ? 3 : version >= 7 ? 8 : version; }
static inline int kp_lisr_form(int version) { return version >= 6 ? 7 : version; }

/* ---- partition states of UpdateMetadata (umr) and LeaderAndIsr, read ---------------------------------------------- */

KP_INLINE int kp_flexible(const int umr, int version) { return version >= (umr ? 6 : 4); }
KP_INLINE int kp_grouped(const int umr, int version) { return version >= (umr ? 5 : 2); }
KP_INLINE int kp_with_id(const int umr, int version) { return version >= (umr ? 7 : 5); }
KP_INLINE int kp_lists(const int umr, int version) { return umr ? (version >= 4 ? 3 : 2) : version >= 3 ? 4 : 2; }
/* The bytes of is_new and leader_recovery_state. */
KP_INLINE int kp_flags(const int umr, int version) { return umr ? 0 : (version >= 1) + (version >= 6); }

/* A row on the wire. */
typedef struct {
    int32_t partition, controller_epoch, leader, leader_epoch, partition_epoch;
    uint8_t is_new;
    int8_t recovery;
    kp_ptr name;                        /* of an ungrouped row */
    int64_t name_length;
    kp_ptr ids[KP_LISTS];
    int64_t n[KP_LISTS];
    kp_ptr tags, tags_end;              /* NULL: none */
} kp_row;

/* The least bytes that a row takes. */
KP_INLINE int64_t kp_least_row(const int umr, int version) {
    return 20 + kp_lists(umr, version) * (kp_flexible(umr, version) ? 1 : 4) + kp_flags(umr, version)
        + kp_flexible(umr, version) + (kp_grouped(umr, version) ? 0 : 2);
}

KP_INLINE kp_ptr kp_read_row(kp_reader *r, kp_ptr p, kp_ptr e, const int umr, const int version, kp_row *row) {
    const int flexible = kp_flexible(umr, version), lists = kp_lists(umr, version);
    const int64_t least = flexible ? 1 : 4, last = kp_flags(umr, version) + flexible;
    row->name = NULL;
    row->name_length = 0;
    if (!kp_grouped(umr, version)) {
        row->name = kp_string(r, p, e, 0, 0, &row->name_length, "topic_name");
        if (row->name == NULL) return NULL;
        p = row->name + row->name_length;
    }
    if (e - p < 16 + least) return kp_fault_group(r, p, "partition_index:4,controller_epoch:4,leader:4,leader_epoch:4,isr:1");
    row->partition = kp_i32(p);
    row->controller_epoch = kp_i32(p + 4);
    row->leader = kp_i32(p + 8);
    row->leader_epoch = kp_i32(p + 12);
    p += 16;
    row->n[0] = kp_count(r, &p, e, flexible, 4, 4 + least, "isr", umr ? "zk_version:4,replicas:1" : "partition_epoch:4,replicas:1");
    if (row->n[0] < 0) return NULL;
    row->ids[0] = p;
    p += 4 * row->n[0];
    row->partition_epoch = kp_i32(p);
    p += 4;
    row->n[1] = kp_count(r, &p, e, flexible, 4, lists > 2 ? least : last, "replicas",
                         umr ? "offline_replicas:1" : lists > 2 ? "adding_replicas:1" : "is_new:1");
    if (row->n[1] < 0) return NULL;
    row->ids[1] = p;
    p += 4 * row->n[1];
    row->n[2] = row->n[3] = 0;
    if (lists > 2) {
        row->n[2] = kp_count(r, &p, e, flexible, 4, umr ? last : least, umr ? "offline_replicas" : "adding_replicas",
                             umr ? "unknown_tagged_fields:1" : "removing_replicas:1");
        if (row->n[2] < 0) return NULL;
        row->ids[2] = p;
        p += 4 * row->n[2];
    }
    if (lists > 3) {
        row->n[3] = kp_count(r, &p, e, flexible, 4, last, "removing_replicas",
                             version >= 6 ? "is_new:1,leader_recovery_state:1,unknown_tagged_fields:1" : "is_new:1,unknown_tagged_fields:1");
        if (row->n[3] < 0) return NULL;
        row->ids[3] = p;
        p += 4 * row->n[3];
    }
    row->is_new = 0;
    row->recovery = 0;
    if (!umr && version >= 1) {
        p = kp_bool(r, p, &row->is_new, "is_new");
        if (p == NULL) return NULL;
    }
    if (!umr && version >= 6) row->recovery = (int8_t)*p++;
    row->tags = NULL;
    return flexible ? kp_tags(r, p, e, &row->tags, &row->tags_end) : p;
}

/* The ids of all its lists, one behind the other; KP_SLACK more may be written behind them. */
KP_INLINE void kp_row_ids(int32_t *to, const kp_row *row, kp_ptr e) {
    for (int k = 0; k < KP_LISTS; k++) {
        kp_ids_loose(to, row->ids[k], row->n[k], e);
        to += row->n[k];
    }
}

/* The part of a topic before its rows. */
typedef struct { kp_ptr name, id; int64_t name_length, rows; } kp_topic_head;

KP_INLINE kp_ptr kp_read_topic(kp_reader *r, kp_ptr p, kp_ptr e, const int umr, const int version, kp_topic_head *topic) {
    const int flexible = kp_flexible(umr, version), with_id = kp_with_id(umr, version);
    topic->name = kp_string(r, p, e, flexible, 0, &topic->name_length, "topic_name");
    if (topic->name == NULL) return NULL;
    p = topic->name + topic->name_length;
    if (e - p < (with_id ? 16 : 0) + (flexible ? 1 : 4))
        return kp_fault_group(r, p, with_id ? "topic_id:16,partition_states:1" : "partition_states:1");
    topic->id = with_id ? p : NULL;
    p += with_id ? 16 : 0;
    topic->rows = kp_count(r, &p, e, flexible, kp_least_row(umr, version), flexible, "partition_states", "unknown_tagged_fields:1");
    return topic->rows < 0 ? NULL : p;
}

/* How many topics follow, or ungrouped rows. */
KP_INLINE int64_t kp_read_states_count(kp_reader *r, kp_ptr *p, const int umr, const int version) {
    const int flexible = kp_flexible(umr, version);
    if (!kp_grouped(umr, version))
        return kp_count(r, p, r->end, 0, kp_least_row(umr, version), 0, "ungrouped_partition_states", "");
    return kp_count(r, p, r->end, flexible, kp_with_id(umr, version) ? 19 : flexible ? 3 : 6, 0, "topic_states", "");
}

/* ---- the same, sized and written ----------------------------------------------------------------------------------- */

/* A row in memory; behind its ids KP_SLACK more may be read. */
typedef struct {
    const int32_t *head;                /* partition, controller epoch, leader, leader epoch */
    int32_t partition_epoch;
    uint8_t is_new;
    int8_t recovery;
    int32_t n[KP_LISTS];
    const int32_t *ids[KP_LISTS];
} kp_state;

/* The most that a row takes without its name, ids and tags: numbers, flags, the counts of lists and of no tags. */
enum { KP_ROW_WITHOUT_IDS = 20 + 2 + 5 * KP_LISTS + 1 };

/* Without name and tags, with the count of no tags. */
KP_INLINE int64_t kp_row_size(const int32_t *n, const int umr, const int version) {
    const int lists = kp_lists(umr, version);
    int64_t size = 20 + kp_flags(umr, version), ids = 0;
    int32_t any = 0;
    for (int k = 0; k < lists; k++) { ids += n[k]; any |= n[k]; }
    size += 4 * ids;
    if (!kp_flexible(umr, version)) return size + 4 * lists;
    size += 1 + lists;
    if (any >= 127)
        for (int k = 0; k < lists; k++) size += kp_varint_size((uint32_t)n[k] + 1) - 1;
    return size;
}

KP_INLINE uint8_t *kp_put_count(uint8_t *q, int64_t n, int flexible) {
    if (!flexible) { kp_put32(q, (int32_t)n); return q + 4; }
    if (KP_LIKELY(n < 127)) { *q = (uint8_t)(n + 1); return q + 1; }
    return kp_put_varint(q, (uint32_t)n + 1);
}

/* Without name and tagged section; the bytes behind it, as many as KP_SLACK ids, are still to be written. */
KP_INLINE uint8_t *kp_put_row(uint8_t *q, const kp_state *row, const int umr, const int version) {
    const int flexible = kp_flexible(umr, version), lists = kp_lists(umr, version);
    kp_reverse_four(q, row->head);
    q = kp_put_ids_loose(kp_put_count(q + 16, row->n[0], flexible), row->ids[0], row->n[0]);
    kp_put32(q, row->partition_epoch);
    q = kp_put_ids_loose(kp_put_count(q + 4, row->n[1], flexible), row->ids[1], row->n[1]);
    if (lists > 2) q = kp_put_ids_loose(kp_put_count(q, row->n[2], flexible), row->ids[2], row->n[2]);
    if (lists > 3) q = kp_put_ids_loose(kp_put_count(q, row->n[3], flexible), row->ids[3], row->n[3]);
    if (!umr && version >= 1) *q++ = row->is_new;
    if (!umr && version >= 6) *q++ = (uint8_t)row->recovery;
    return q;
}

/* Calls WORK(form) with the form of the version as a constant. */
#define KP_UMR_FORMS(version, WORK)                                                                                    \
    switch (kp_umr_form(version)) {                                                                                    \
    case 3: WORK(3); case 4: WORK(4); case 5: WORK(5); case 6: WORK(6); default: WORK(8);                               \
    }
#define KP_LISR_FORMS(version, WORK)                                                                                   \
    switch (kp_lisr_form(version)) {                                                                                   \
    case 0: WORK(0); case 1: WORK(1); case 2: WORK(2); case 3: WORK(3); case 4: WORK(4); case 5: WORK(5); default: WORK(7); \
    }

#define KP_WORK(form) return kp_read_row(r, p, r->end, 1, form, row)
static inline kp_ptr kp_read_umr_row(kp_reader *r, kp_ptr p, int version, kp_row *row) { KP_UMR_FORMS(version, KP_WORK) }
#undef KP_WORK
#define KP_WORK(form) return kp_read_row(r, p, r->end, 0, form, row)
static inline kp_ptr kp_read_lisr_row(kp_reader *r, kp_ptr p, int version, kp_row *row) { KP_LISR_FORMS(version, KP_WORK) }
#undef KP_WORK
static inline kp_ptr kp_topic_of(kp_reader *r, kp_ptr p, int umr, int version, kp_topic_head *topic) {
    return umr ? kp_read_topic(r, p, r->end, 1, version, topic) : kp_read_topic(r, p, r->end, 0, version, topic);
}

/* ---- partitions to stop --------------------------------------------------------------------------------------------- */

/* A partition state of StopReplica, version 3 and later. */
typedef struct { int32_t partition, leader_epoch; uint8_t flag; kp_ptr tags, tags_end; } kp_stop;

KP_INLINE kp_ptr kp_read_stop(kp_reader *r, kp_ptr p, kp_ptr e, kp_stop *row) {
    if (e - p < 10) return kp_fault_group(r, p, "partition_index:4,leader_epoch:4,delete_partition:1,unknown_tagged_fields:1");
    row->partition = kp_i32(p);
    row->leader_epoch = kp_i32(p + 4);
    p = kp_bool(r, p + 8, &row->flag, "delete_partition");
    return p == NULL ? NULL : kp_tags(r, p, e, &row->tags, &row->tags_end);
}

KP_INLINE const char *kp_stops_field(int version) {
    return version >= 3 ? "topic_states" : version >= 1 ? "topics" : "ungrouped_partitions";
}

/* How many topics follow, or in version 0 partitions, of which each is read as a topic of one. */
KP_INLINE int64_t kp_read_stops_count(kp_reader *r, kp_ptr *p, int version) {
    const int flexible = version >= 2;
    return kp_count(r, p, r->end, flexible, flexible ? 3 : 6, flexible, kp_stops_field(version), flexible ? "unknown_tagged_fields:1" : "");
}

KP_INLINE kp_ptr kp_read_stop_topic(kp_reader *r, kp_ptr p, kp_ptr e, int version, kp_topic_head *topic) {
    const int flexible = version >= 2;
    topic->id = NULL;
    topic->name = kp_string(r, p, e, flexible, 0, &topic->name_length, version == 0 || version >= 3 ? "topic_name" : "name");
    if (topic->name == NULL) return NULL;
    p = topic->name + topic->name_length;
    topic->rows = 1;
    if (version == 0) return e - p < 4 ? kp_fault_group(r, p, "partition_index:4") : p;
    topic->rows = kp_count(r, &p, e, flexible, version >= 3 ? 10 : 4, flexible,
                           version >= 3 ? "partition_states" : "partition_indexes", "unknown_tagged_fields:1");
    return topic->rows < 0 ? NULL : p;
}

/* ---- partition errors in responses ------------------------------------------------------------------------------------ */

typedef struct { int32_t partition; int16_t error_code; kp_ptr name, tags, tags_end; int64_t name_length; } kp_error;

KP_INLINE kp_ptr kp_read_error(kp_reader *r, kp_ptr p, kp_ptr e, int flexible, int named, kp_error *row) {
    row->name = NULL;
    row->name_length = 0;
    if (named) {
        row->name = kp_string(r, p, e, flexible, 0, &row->name_length, "topic_name");
        if (row->name == NULL) return NULL;
        p = row->name + row->name_length;
    }
    if (e - p < 6 + flexible) return kp_fault_group(r, p, "partition_index:4,error_code:2,unknown_tagged_fields:1");
    row->partition = kp_i32(p);
    row->error_code = kp_i16(p + 4);
    row->tags = NULL;
    return flexible ? kp_tags(r, p + 6, e, &row->tags, &row->tags_end) : p + 6;
}

#endif
