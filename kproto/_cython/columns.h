/* Partition rows in Arrow's own layout, filled without the interpreter.
 *
 * A batch grows frame by frame. Topics stand once each in a dictionary of (name, id) pairs, which the columns topic and
 * topic_id share as their codes; all other columns are plain int32, bytes, and int32 lists with offsets.
 */
#ifndef KPROTO_COLUMNS_H
#define KPROTO_COLUMNS_H

#include "rows.h"

enum kp_layout { KP_ERRORS = 0, KP_LISR = 4, KP_SR = 5, KP_UMR = 6 };
enum kp_column { KP_FRAME, KP_TOPIC, KP_PARTITION, KP_CONTROLLER_EPOCH, KP_LEADER, KP_LEADER_EPOCH, KP_PARTITION_EPOCH, KP_INTS };
enum { KP_HAS_NAME = 1, KP_HAS_ID = 2 };

typedef struct {
    int64_t references;
    int layout, lists;
    int64_t rows, capacity;
    int32_t *ints[KP_INTS];          /* NULL where the layout has no such column */
    uint8_t *flag;                   /* is_new or delete_partition: a byte each, bits once sealed */
    int8_t *recovery;
    int16_t *error;
    int32_t *offsets[KP_LISTS];      /* isr, replicas, then offline | adding and removing */
    int32_t *ids[KP_LISTS];
    int64_t used[KP_LISTS], ids_capacity[KP_LISTS];
    /* the topics */
    int64_t topics, topics_capacity, names_used, names_capacity;
    int32_t *name_ends;              /* one more than topics, the first 0 */
    uint8_t *names, *topic_ids, *has;
    uint32_t *hashes;
    uint32_t *slots, mask;           /* topic + 1 by hash, 0 free; a power of two of them, at most half full */
    int64_t collisions;              /* slots of other topics that were visited in searches */
    uint8_t *valid[2];               /* sealed, layout KP_ERRORS: which rows have a name, an id */
} kp_batch;

typedef struct { int64_t rows, used[KP_LISTS], topics; } kp_mark;

static const uint8_t kp_zero_id[16] = {0};

/* A freed batch is kept for the next of its layout, one for each layout, up to this size: fresh pages from the system
 * cost several times as much as filling them. */
#define KP_SPARE (8 << 20)
static kp_batch *kp_spare[KP_UMR + 1];

static int64_t kp_batch_bytes(const kp_batch *b) {
    int64_t n = 44 * b->capacity + b->names_capacity + 25 * b->topics_capacity + 4 * ((int64_t)b->mask + 1);
    for (int i = 0; i < b->lists; i++) n += 4 * b->ids_capacity[i];
    return n;
}

static void kp_batch_free(kp_batch *b) {
    for (int i = 0; i < KP_INTS; i++) free(b->ints[i]);
    for (int i = 0; i < KP_LISTS; i++) { free(b->offsets[i]); free(b->ids[i]); }
    free(b->flag); free(b->recovery); free(b->error);
    free(b->name_ends); free(b->names); free(b->topic_ids); free(b->has); free(b->hashes); free(b->slots);
    free(b->valid[0]); free(b->valid[1]);
    free(b);
}

static void kp_batch_drop(kp_batch *b) {
    if (b == NULL || __atomic_sub_fetch(&b->references, 1, __ATOMIC_ACQ_REL)) return;
    if (kp_batch_bytes(b) <= KP_SPARE) b = __atomic_exchange_n(&kp_spare[b->layout], b, __ATOMIC_ACQ_REL);
    if (b) kp_batch_free(b);
}

/* ---- capacity -------------------------------------------------------------------------------------------------- */

static int kp_resize(void *at, int64_t count, size_t each) {
    void **p = (void **)at, *grown = realloc(*p, (size_t)(count ? count : 1) * each);
    if (grown == NULL) return -1;
    *p = grown;
    return 0;
}

static int kp_resize_rows(kp_batch *b, int64_t capacity) {
    for (int i = 0; i < KP_INTS; i++)
        if (b->ints[i] && kp_resize(&b->ints[i], capacity, 4)) return -1;
    for (int i = 0; i < b->lists; i++)
        if (kp_resize(&b->offsets[i], capacity + 1, 4)) return -1;
    if (b->flag && kp_resize(&b->flag, capacity, 1)) return -1;
    if (b->recovery && kp_resize(&b->recovery, capacity, 1)) return -1;
    if (b->error && kp_resize(&b->error, capacity, 2)) return -1;
    b->capacity = capacity;
    return 0;
}

static kp_batch *kp_batch_new(int layout) {
    kp_batch *b = __atomic_exchange_n(&kp_spare[layout], NULL, __ATOMIC_ACQ_REL);
    if (b) {
        b->references = 1;
        b->rows = b->topics = b->names_used = b->collisions = 0;
        memset(b->used, 0, sizeof b->used);
        memset(b->slots, 0, 4 * ((size_t)b->mask + 1));
        for (int i = 0; i < 2; i++) { free(b->valid[i]); b->valid[i] = NULL; }
        return b;
    }
    b = (kp_batch *)calloc(1, sizeof(kp_batch));
    if (b == NULL) return NULL;
    b->references = 1;
    b->layout = layout;
    b->lists = layout == KP_UMR ? 3 : layout == KP_LISR ? 4 : 0;
    int ok = 1;
    for (int i = 0; i < KP_INTS; i++) {
        int has = i <= KP_PARTITION || layout == KP_UMR || layout == KP_LISR || (layout == KP_SR && i == KP_LEADER_EPOCH);
        if (has) ok = ok && (b->ints[i] = (int32_t *)malloc(4)) != NULL;
    }
    for (int i = 0; i < b->lists; i++) {
        ok = ok && (b->offsets[i] = (int32_t *)calloc(1, 8)) != NULL;
        ok = ok && (b->ids[i] = (int32_t *)malloc(4)) != NULL;
    }
    if (layout == KP_LISR || layout == KP_SR) ok = ok && (b->flag = (uint8_t *)malloc(1)) != NULL;
    if (layout == KP_LISR) ok = ok && (b->recovery = (int8_t *)malloc(1)) != NULL;
    if (layout == KP_ERRORS) ok = ok && (b->error = (int16_t *)malloc(2)) != NULL;
    ok = ok && (b->name_ends = (int32_t *)calloc(1, 4)) != NULL && (b->names = (uint8_t *)malloc(1)) != NULL
        && (b->topic_ids = (uint8_t *)malloc(16)) != NULL && (b->has = (uint8_t *)malloc(1)) != NULL
        && (b->hashes = (uint32_t *)malloc(4)) != NULL && (b->slots = (uint32_t *)calloc(64, 4)) != NULL;
    b->mask = 63;
    if (ok) return b;
    kp_batch_free(b);
    return NULL;
}

/* Reserves memory for the most rows and ids that the rest of a frame can hold, once for each frame; pages that the frame
 * does not fill are never touched. */
static int kp_reserve_rows(kp_reader *r, kp_batch *b, kp_ptr p, int64_t least) {
    int64_t rows = b->rows + (r->end - p) / least, ids = (r->end - p) / 4 + KP_SLACK;
    if (rows >= INT32_MAX) { kp_fault(r, KP_FULL, p, 0, ""); return -1; }
    if (rows > b->capacity && kp_resize_rows(b, rows > b->capacity + b->capacity / 2 ? rows : b->capacity + b->capacity / 2)) goto none;
    for (int i = 0; i < b->lists; i++) {
        int64_t need = b->used[i] + ids, more = b->ids_capacity[i] + b->ids_capacity[i] / 2;
        if (need >= INT32_MAX) { kp_fault(r, KP_FULL, p, 0, ""); return -1; }
        if (need <= b->ids_capacity[i]) continue;
        if (kp_resize(&b->ids[i], need > more ? need : more, 4)) goto none;
        b->ids_capacity[i] = need > more ? need : more;
    }
    return 0;
none:
    kp_fault(r, KP_NO_MEMORY, p, 0, "");
    return -1;
}

/* ---- topics ---------------------------------------------------------------------------------------------------- */

/* SipHash-1-3 (Aumasson and Bernstein) under a key that each process draws: names cannot be chosen to collide. */
static uint64_t kp_hash_key[2];

#define KP_ROTATED(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define KP_SIP_ROUND                                                                                                   \
    do {                                                                                                               \
        v0 += v1; v2 += v3; v1 = KP_ROTATED(v1, 13) ^ v0; v3 = KP_ROTATED(v3, 16) ^ v2; v0 = KP_ROTATED(v0, 32);         \
        v2 += v1; v0 += v3; v1 = KP_ROTATED(v1, 17) ^ v2; v3 = KP_ROTATED(v3, 21) ^ v0; v2 = KP_ROTATED(v2, 32);         \
    } while (0)
#define KP_SIP_WORD(word) do { w = (word); v3 ^= w; KP_SIP_ROUND; v0 ^= w; } while (0)

static inline uint64_t kp_word(kp_ptr p) { uint64_t w; memcpy(&w, p, 8); return w; }

static inline uint32_t kp_topic_hash(kp_ptr name, int64_t n, kp_ptr id) {
    uint64_t v0 = kp_hash_key[0] ^ 0x736f6d6570736575u, v1 = kp_hash_key[1] ^ 0x646f72616e646f6du;
    uint64_t v2 = kp_hash_key[0] ^ 0x6c7967656e657261u, v3 = kp_hash_key[1] ^ 0x7465646279746573u;
    uint64_t w, last = (uint64_t)n << 56 | (uint64_t)(id != NULL) << 55;
    if (id) { KP_SIP_WORD(kp_word(id)); KP_SIP_WORD(kp_word(id + 8)); }
    for (; n >= 8; name += 8, n -= 8) KP_SIP_WORD(kp_word(name));
    for (int64_t i = 0; i < n; i++) last ^= (uint64_t)name[i] << (8 * i);
    KP_SIP_WORD(last);
    v2 ^= 0xff;
    KP_SIP_ROUND; KP_SIP_ROUND; KP_SIP_ROUND;
    return (uint32_t)(v0 ^ v1 ^ v2 ^ v3);
}

static inline int kp_topic_is(const kp_batch *b, int64_t t, kp_ptr name, int64_t n, kp_ptr id) {
    kp_ptr own = b->names + b->name_ends[t];
    return b->name_ends[t + 1] - b->name_ends[t] == n && b->has[t] == ((name ? KP_HAS_NAME : 0) | (id ? KP_HAS_ID : 0))
        && memcmp(own, name ? name : own, (size_t)n) == 0 && (id == NULL || memcmp(b->topic_ids + 16 * t, id, 16) == 0);
}

static inline void kp_topic_place(kp_batch *b, int64_t t) {
    uint32_t at = b->hashes[t] & b->mask;
    while (b->slots[at]) at = (at + 1) & b->mask;
    b->slots[at] = (uint32_t)t + 1;
}

/* Forget the topics from `topics` on. The last inserted is removed first, so no search path of an earlier topic breaks. */
static KP_COLD void kp_topics_forget(kp_batch *b, int64_t topics) {
    while (b->topics > topics) {
        uint32_t t = (uint32_t)--b->topics, at = b->hashes[t] & b->mask;
        while (b->slots[at] != t + 1) at = (at + 1) & b->mask;
        b->slots[at] = 0;
    }
    b->names_used = b->name_ends[topics];
}

/* Reserves memory for this number of topics in the dictionary and its hash table. */
static KP_COLD int kp_reserve_topics(kp_batch *b, int64_t topics) {
    if (topics > b->topics_capacity) {
        int64_t capacity = topics > 2 * b->topics_capacity ? topics : 2 * b->topics_capacity;
        if (kp_resize(&b->name_ends, capacity + 1, 4) || kp_resize(&b->topic_ids, capacity, 16)
            || kp_resize(&b->has, capacity, 1) || kp_resize(&b->hashes, capacity, 4)) return -1;
        b->topics_capacity = capacity;
    }
    uint64_t slots = (uint64_t)b->mask + 1;
    while (slots < 2 * (uint64_t)b->topics_capacity) slots *= 2;
    if (slots > (uint64_t)b->mask + 1) {
        uint32_t *fresh = (uint32_t *)calloc(slots, 4);
        if (fresh == NULL) return -1;
        free(b->slots);
        b->slots = fresh;
        b->mask = (uint32_t)(slots - 1);
        for (int64_t i = 0; i < b->topics; i++) kp_topic_place(b, i);
    }
    return 0;
}

static inline int64_t kp_topic_find(kp_batch *b, uint32_t hash, kp_ptr name, int64_t n, kp_ptr id) {
    for (uint32_t at = hash & b->mask; b->slots[at]; at = (at + 1) & b->mask) {
        uint32_t t = b->slots[at] - 1;
        if (b->hashes[t] == hash && kp_topic_is(b, t, name, n, id)) return t;
        b->collisions++;
    }
    return -1;
}

/* A new topic; its code, or -1 after a fault. The name is checked in our copy, which no other thread can change;
 * an ill-formed name is kept as Java reads it, and may then be in the dictionary already. */
static int64_t kp_topic_add(kp_reader *r, kp_batch *b, uint32_t hash, kp_ptr name, int64_t n, kp_ptr id) {
    int64_t t = b->topics;
    uint8_t *copy;
    if (t >= INT32_MAX - 16 || b->names_used + 4 * n > INT32_MAX) { kp_fault(r, KP_FULL, r->base, 0, ""); return -1; }
    if (t >= b->topics_capacity && kp_reserve_topics(b, t + 16)) goto none;
    if (b->names_used + 4 * n > b->names_capacity) {
        int64_t capacity = 2 * b->names_capacity + 4 * n + 64;
        if (kp_resize(&b->names, capacity, 1)) goto none;
        b->names_capacity = capacity;
    }
    copy = b->names + b->names_used;
    if (n) memcpy(copy, name, (size_t)n);
    if (!kp_is_ascii(copy, n) && kp_bad_utf8(copy, n)) {
        int64_t length = kp_replace_utf8(copy + n, copy, n), known;
        memmove(copy, copy + n, (size_t)length);
        n = length;
        hash = kp_topic_hash(copy, n, id);
        known = kp_topic_find(b, hash, copy, n, id);
        if (known >= 0) return known;
    }
    b->names_used += n;
    b->name_ends[t + 1] = (int32_t)b->names_used;
    b->has[t] = (name ? KP_HAS_NAME : 0) | (id ? KP_HAS_ID : 0);
    if (id) memcpy(b->topic_ids + 16 * t, id, 16); else memset(b->topic_ids + 16 * t, 0, 16);
    b->hashes[t] = hash;
    b->topics++;
    kp_topic_place(b, t);
    return t;
none:
    kp_fault(r, KP_NO_MEMORY, r->base, 0, "");
    return -1;
}

/* The code of a topic, known or new; -1 after a fault. `name` is NULL if the topic has no name, `id` likewise. */
static inline int64_t kp_topic(kp_reader *r, kp_batch *b, kp_ptr name, int64_t n, kp_ptr id, int64_t before) {
    if (before + 1 < b->topics && kp_topic_is(b, before + 1, name, n, id)) return before + 1;   /* as in the last frame */
    uint32_t hash = kp_topic_hash(name, n, id);
    int64_t t = kp_topic_find(b, hash, name, n, id);
    return t >= 0 ? t : kp_topic_add(r, b, hash, name, n, id);
}

/* The same for a row that names its topic, which is most often that of the row before. */
KP_INLINE int64_t kp_row_topic(kp_reader *r, kp_batch *b, kp_ptr name, int64_t n, int64_t before) {
    return before >= 0 && kp_topic_is(b, before, name, n, NULL) ? before : kp_topic(r, b, name, n, NULL, before);
}

/* ---- marks ----------------------------------------------------------------------------------------------------- */

static void kp_mark_set(const kp_batch *b, kp_mark *m) {
    m->rows = b->rows;
    m->topics = b->topics;
    memcpy(m->used, b->used, sizeof m->used);
}

static void kp_mark_back(kp_batch *b, const kp_mark *m) {
    b->rows = m->rows;
    memcpy(b->used, m->used, sizeof m->used);
    kp_topics_forget(b, m->topics);
}

/* ---- the frame appended last ------------------------------------------------------------------------------------ */

/* How many topics the rows from `first` on are of; -1 without memory. */
static int64_t kp_topics_in(const kp_batch *b, int64_t first) {
    const int32_t *code = b->ints[KP_TOPIC];
    int64_t n = 0;
    uint8_t *met = (uint8_t *)calloc((size_t)b->topics + 1, 1);
    if (met == NULL) return -1;
    for (int64_t i = first; i < b->rows; i++) {
        n += !met[code[i]];
        met[code[i]] = 1;
    }
    free(met);
    return n;
}

enum { KP_FEW_REPLICAS = 64 };

/* Finds the replicas that all rows after a mark have in common; returns their number, or -1 where the first row has more
 * than a few, which would take the square of their number. */
static int64_t kp_common_replicas(const kp_batch *b, const kp_mark *m, int32_t found[KP_FEW_REPLICAS]) {
    const int32_t *ids = b->ids[1], *ends = b->offsets[1] + 1;
    int64_t n = 0;
    if (b->lists < 2 || m->rows == b->rows) return 0;
    if (ends[m->rows] - m->used[1] > KP_FEW_REPLICAS) return -1;
    for (int64_t i = m->used[1]; i < ends[m->rows]; i++) {
        int64_t known = 0;
        while (known < n && found[known] != ids[i]) known++;
        if (known == n) found[n++] = ids[i];
    }
    for (int64_t row = m->rows + 1; n && row < b->rows; row++) {
        int64_t kept = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = ends[row - 1];
            while (i < ends[row] && ids[i] != found[k]) i++;
            if (i < ends[row]) found[kept++] = found[k];
        }
        n = kept;
    }
    return n;
}

/* ---- sealing --------------------------------------------------------------------------------------------------- */

/* Closes a batch: packs flags into bits, and marks the rows that have a name or an id. A small batch frees its unused
 * memory; in a large one it is pages that were never touched. */
static int kp_seal(kp_batch *b) {
    int64_t n = b->rows;
    if (b->capacity > 2 * n && b->capacity < 4096 && kp_resize_rows(b, n)) return -1;
    for (int i = 0; i < b->lists; i++) {
        b->offsets[i][0] = 0;
        if (b->ids_capacity[i] <= 2 * b->used[i] + KP_SLACK || b->ids_capacity[i] > 16384) continue;
        if (kp_resize(&b->ids[i], b->used[i] + KP_SLACK, 4)) return -1;
        b->ids_capacity[i] = b->used[i] + KP_SLACK;
    }
    if (b->flag) {
        for (int64_t i = 0; i < n; i += 8) {
            uint8_t bits = 0;
            for (int64_t k = i; k < n && k < i + 8; k++) bits |= (uint8_t)(b->flag[k] << (k - i));
            b->flag[i / 8] = bits;
        }
    }
    if (b->layout == KP_ERRORS) {
        for (int k = 0; k < 2; k++) {
            if ((b->valid[k] = (uint8_t *)calloc((size_t)(n + 7) / 8 + 1, 1)) == NULL) return -1;
            for (int64_t i = 0; i < n; i++)
                if (b->has[b->ints[KP_TOPIC][i]] & (k ? KP_HAS_ID : KP_HAS_NAME)) b->valid[k][i / 8] |= (uint8_t)(1 << (i % 8));
        }
    }
    return 0;
}

#endif
