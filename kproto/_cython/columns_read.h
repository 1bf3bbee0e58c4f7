/* Partition states and errors from the wire into a batch of columns, frame by frame. */
#ifndef KPROTO_COLUMNS_READ_H
#define KPROTO_COLUMNS_READ_H

#include "columns.h"

static inline void kp_fill(int32_t *to, int64_t n, int32_t value) { for (int64_t i = 0; i < n; i++) to[i] = value; }

/* n partition states of UpdateMetadata or LeaderAndIsr, of topic `code`, or (ungrouped) each with its own name. */
static inline __attribute__((always_inline)) kp_ptr kp_rows(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, const int umr, int version, int64_t code, const char *field) {
    kp_ptr e = r->end, from, to, q;
    const int flexible = version >= (umr ? 6 : 4), ungrouped = version < (umr ? 5 : 2);
    const int more = umr ? version >= 4 : version >= 3;
    const int64_t least = flexible ? 1 : 4;
    const int64_t last = umr ? flexible : (version >= 1) + (version >= 6) + flexible;
    int64_t j = 0, row = b->rows, count, length;
    int64_t u0 = b->used[0], u1 = b->used[1], u2 = b->used[2], u3 = b->used[3];
    int32_t *partition = b->ints[KP_PARTITION], *controller_epoch = b->ints[KP_CONTROLLER_EPOCH], *leader = b->ints[KP_LEADER];
    int32_t *leader_epoch = b->ints[KP_LEADER_EPOCH], *partition_epoch = b->ints[KP_PARTITION_EPOCH], *topic = b->ints[KP_TOPIC];
    int32_t *i0 = b->ids[0], *i1 = b->ids[1], *i2 = b->ids[2], *i3 = b->ids[3];
    for (; j < n; j++, row++) {
        if (ungrouped) {
            q = kp_string(r, p, e, 0, 0, &length, "topic_name");
            if (q == NULL) goto fault;
            code = kp_topic(r, b, q, length, NULL, code);
            if (code < 0) goto fault;
            topic[row] = (int32_t)code;
            p = q + length;
        }
        if (e - p < 16 + least) {
            kp_fault_group(r, p, "partition_index:4,controller_epoch:4,leader:4,leader_epoch:4,isr:1");
            goto fault;
        }
        partition[row] = kp_i32(p);
        controller_epoch[row] = kp_i32(p + 4);
        leader[row] = kp_i32(p + 8);
        leader_epoch[row] = kp_i32(p + 12);
        p += 16;
        count = kp_count(r, &p, e, flexible, 4, 4 + least, "isr", umr ? "zk_version:4,replicas:1" : "partition_epoch:4,replicas:1");
        if (count < 0) goto fault;
        kp_ids_loose(i0 + u0, p, count, e);
        u0 += count;
        b->offsets[0][row + 1] = (int32_t)u0;
        p += 4 * count;
        partition_epoch[row] = kp_i32(p);
        p += 4;
        count = kp_count(r, &p, e, flexible, 4, more ? least : last, "replicas", umr ? "offline_replicas:1" : more ? "adding_replicas:1" : "is_new:1");
        if (count < 0) goto fault;
        kp_ids_loose(i1 + u1, p, count, e);
        u1 += count;
        b->offsets[1][row + 1] = (int32_t)u1;
        p += 4 * count;
        if (umr) {
            if (more) {
                count = kp_count(r, &p, e, flexible, 4, last, "offline_replicas", "unknown_tagged_fields:1");
                if (count < 0) goto fault;
                kp_ids_loose(i2 + u2, p, count, e);
                u2 += count;
                p += 4 * count;
            }
            b->offsets[2][row + 1] = (int32_t)u2;
        } else {
            if (more) {
                count = kp_count(r, &p, e, flexible, 4, least, "adding_replicas", "removing_replicas:1");
                if (count < 0) goto fault;
                kp_ids_loose(i2 + u2, p, count, e);
                u2 += count;
                p += 4 * count;
                count = kp_count(r, &p, e, flexible, 4, last, "removing_replicas",
                                 version >= 6 ? "is_new:1,leader_recovery_state:1,unknown_tagged_fields:1" : "is_new:1,unknown_tagged_fields:1");
                if (count < 0) goto fault;
                kp_ids_loose(i3 + u3, p, count, e);
                u3 += count;
                p += 4 * count;
            }
            b->offsets[2][row + 1] = (int32_t)u2;
            b->offsets[3][row + 1] = (int32_t)u3;
            b->flag[row] = 0;
            b->recovery[row] = 0;
            if (version >= 1) {
                p = kp_bool(r, p, b->flag + row, "is_new");
                if (p == NULL) goto fault;
            }
            if (version >= 6) b->recovery[row] = (int8_t)*p++;
        }
        if (flexible) {
            p = kp_tags(r, p, e, &from, &to);
            if (p == NULL) goto fault;
        }
    }
    if (!ungrouped) kp_fill(topic + b->rows, n, (int32_t)code);
    b->rows = row;
    b->used[0] = u0; b->used[1] = u1; b->used[2] = u2; b->used[3] = u3;
    return p;
fault:
    return kp_inside(r, field, j);
}

/* The partition states of an UpdateMetadata or LeaderAndIsr request, from their count on; gives where they end. */
static inline __attribute__((always_inline)) kp_ptr kp_states(kp_reader *r, kp_batch *b, kp_ptr p, const int umr, int version) {
    kp_ptr e = r->end, name, from, to;
    const int flexible = version >= (umr ? 6 : 4), with_id = version >= (umr ? 7 : 5);
    const int64_t row = umr ? (version >= 6 ? 24 : version == 5 ? 32 : version == 4 ? 34 : 30)
                            : (version >= 6 ? 27 : version >= 4 ? 26 : version == 3 ? 37 : version == 2 ? 29 : 30 + version);
    int64_t n, i, length, code = -1, topics;
    if (version < (umr ? 5 : 2)) {
        n = kp_count(r, &p, e, 0, row, 0, "ungrouped_partition_states", "");
        if (n < 0 || kp_room(r, b, p, row)) return NULL;
        return kp_rows(r, b, p, n, umr, version, code, "ungrouped_partition_states");
    }
    topics = kp_count(r, &p, e, flexible, with_id ? 19 : flexible ? 3 : 6, 0, "topic_states", "");
    if (topics < 0 || kp_room(r, b, p, row)) return NULL;
    if (topics < 65536 && kp_topics_room(b, b->topics + topics)) return kp_fault(r, KP_NO_MEMORY, p, 0, "");
    for (i = 0; i < topics; i++) {
        name = kp_string(r, p, e, flexible, 0, &length, "topic_name");
        if (name == NULL) goto fault;
        p = name + length;
        if (e - p < (with_id ? 16 : 0) + (flexible ? 1 : 4)) {
            kp_fault_group(r, p, with_id ? "topic_id:16,partition_states:1" : "partition_states:1");
            goto fault;
        }
        uint8_t id[16];
        if (with_id) memcpy(id, p, 16);
        code = kp_topic(r, b, name, length, with_id ? id : NULL, code);
        if (code < 0) goto fault;
        p += with_id ? 16 : 0;
        n = kp_count(r, &p, e, flexible, row, flexible, "partition_states", "unknown_tagged_fields:1");
        if (n < 0) goto fault;
        p = kp_rows(r, b, p, n, umr, version, code, "partition_states");
        if (p == NULL) goto fault;
        if (flexible) {
            p = kp_tags(r, p, e, &from, &to);
            if (p == NULL) goto fault;
        }
    }
    return p;
fault:
    return kp_inside(r, "topic_states", i);
}

static kp_ptr kp_umr_states(kp_reader *r, kp_batch *b, kp_ptr p, int version) { return kp_states(r, b, p, 1, version); }
static kp_ptr kp_lisr_states(kp_reader *r, kp_batch *b, kp_ptr p, int version) { return kp_states(r, b, p, 0, version); }

/* The partitions of a StopReplica request, from their count on. Below version 3 the flag is the request's. */
static kp_ptr kp_sr_states(kp_reader *r, kp_batch *b, kp_ptr p, int version, uint8_t delete_partitions) {
    kp_ptr e = r->end, name, from, to;
    const int flexible = version >= 2;
    int64_t i, j, n, length, code = -1, groups, row;
    const char *field = version >= 3 ? "topic_states" : version >= 1 ? "topics" : "ungrouped_partitions";
    groups = kp_count(r, &p, e, flexible, version == 0 || !flexible ? 6 : 3, 0, field, "");
    if (groups < 0 || kp_room(r, b, p, version >= 3 ? 10 : 4)) return NULL;
    if (groups < 65536 && kp_topics_room(b, b->topics + groups)) return kp_fault(r, KP_NO_MEMORY, p, 0, "");
    for (i = 0; i < groups; i++) {
        name = kp_string(r, p, e, flexible, 0, &length, version == 0 || version >= 3 ? "topic_name" : "name");
        if (name == NULL) goto fault;
        p = name + length;
        code = kp_topic(r, b, name, length, NULL, code);
        if (code < 0) goto fault;
        row = b->rows;
        if (version == 0) {
            if (e - p < 4) { kp_fault_group(r, p, "partition_index:4"); goto fault; }
            n = 1;
        } else if (version <= 2) {
            n = kp_count(r, &p, e, flexible, 4, flexible, "partition_indexes", "unknown_tagged_fields:1");
            if (n < 0) goto fault;
        } else {
            n = kp_count(r, &p, e, 1, 10, 1, "partition_states", "unknown_tagged_fields:1");
            if (n < 0) goto fault;
        }
        int32_t *partition = b->ints[KP_PARTITION] + row, *leader_epoch = b->ints[KP_LEADER_EPOCH] + row;
        uint8_t *flag = b->flag + row;
        if (version <= 2) {
            kp_ids(partition, p, n);
            kp_fill(leader_epoch, n, -1);
            memset(flag, delete_partitions, (size_t)n);
            p += 4 * n;
        } else if (!r->strict && e - p >= 10 * n) {
            uint8_t odd = 0;                              /* all rows in one go, as long as none has tags */
            for (j = 0; j < n; j++) {
                partition[j] = kp_i32(p + 10 * j);
                leader_epoch[j] = kp_i32(p + 10 * j + 4);
                flag[j] = p[10 * j + 8] != 0;
                odd |= p[10 * j + 9];
            }
            if (KP_LIKELY(odd == 0)) { p += 10 * n; goto rows_done; }
        }
        for (j = 0; version >= 3 && j < n; j++) {
            if (e - p < 10) {
                kp_fault_group(r, p, "partition_index:4,leader_epoch:4,delete_partition:1,unknown_tagged_fields:1");
                kp_inside(r, "partition_states", j);
                goto fault;
            }
            partition[j] = kp_i32(p);
            leader_epoch[j] = kp_i32(p + 4);
            p = kp_bool(r, p + 8, flag + j, "delete_partition");
            if (p != NULL) p = kp_tags(r, p, e, &from, &to);
            if (p == NULL) { kp_inside(r, "partition_states", j); goto fault; }
        }
rows_done:
        kp_fill(b->ints[KP_TOPIC] + row, n, (int32_t)code);
        b->rows += n;
        if (flexible) {
            p = kp_tags(r, p, e, &from, &to);
            if (p == NULL) goto fault;
        }
    }
    return p;
fault:
    return kp_inside(r, field, i);
}

/* n partition errors, by name or of topic `code`. */
static kp_ptr kp_error_rows(kp_reader *r, kp_batch *b, kp_ptr p, int64_t n, int flexible, int named, int64_t code) {
    kp_ptr e = r->end, from, to, name;
    int64_t j, length;
    for (j = 0; j < n; j++) {
        if (named) {
            name = kp_string(r, p, e, flexible, 0, &length, "topic_name");
            if (name == NULL) goto fault;
            if (code < 0 || !kp_topic_is(b, code, name, length, NULL)) code = kp_topic(r, b, name, length, NULL, code);
            if (code < 0) goto fault;
            p = name + length;
        }
        if (e - p < 6 + flexible) { kp_fault_group(r, p, "partition_index:4,error_code:2,unknown_tagged_fields:1"); goto fault; }
        b->ints[KP_TOPIC][b->rows] = (int32_t)code;
        b->ints[KP_PARTITION][b->rows] = kp_i32(p);
        b->error[b->rows++] = kp_i16(p + 4);
        p += 6;
        if (flexible) {
            p = kp_tags(r, p, e, &from, &to);
            if (p == NULL) goto fault;
        }
    }
    return p;
fault:
    return kp_inside(r, "partition_errors", j);
}

/* The partition errors of a LeaderAndIsr (by_id: version 5 and later) or StopReplica response, from their count on. */
static kp_ptr kp_errors(kp_reader *r, kp_batch *b, kp_ptr p, int flexible, int by_id) {
    kp_ptr e = r->end, from, to;
    int64_t i, n, topics, code = -1;
    if (!by_id) {
        n = kp_count(r, &p, e, flexible, 8, 0, "partition_errors", "");
        if (n < 0 || kp_room(r, b, p, 7)) return NULL;
        return kp_error_rows(r, b, p, n, flexible, 1, code);
    }
    topics = kp_count(r, &p, e, 1, 18, 0, "topics", "");
    if (topics < 0 || kp_room(r, b, p, 7)) return NULL;
    for (i = 0; i < topics; i++) {
        uint8_t id[16];
        if (e - p < 17) { kp_fault_group(r, p, "topic_id:16,partition_errors:1"); goto fault; }
        memcpy(id, p, 16);
        p += 16;
        code = kp_topic(r, b, NULL, 0, id, code);
        if (code < 0) goto fault;
        n = kp_count(r, &p, e, 1, 7, 1, "partition_errors", "unknown_tagged_fields:1");
        if (n < 0) goto fault;
        p = kp_error_rows(r, b, p, n, 1, 0, code);
        if (p != NULL) p = kp_tags(r, p, e, &from, &to);
        if (p == NULL) goto fault;
    }
    return p;
fault:
    return kp_inside(r, "topics", i);
}

#endif
