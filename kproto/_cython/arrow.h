/* Exports a batch, and imports columns, by Arrow's C data interface (its two structs are the standard's own). */
#ifndef KPROTO_ARROW_H
#define KPROTO_ARROW_H

#include "columns.h"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_NULLABLE 2
struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* ---- schemas ------------------------------------------------------------------------------------------------------ */

typedef struct { const char *name, *format; int column; } kp_field;   /* column: kp_column, or one of these */
enum { KP_TOPIC_ID = 100, KP_FLAG, KP_RECOVERY, KP_ERROR, KP_LIST };

static const kp_field *kp_fields(int layout) {
    static const kp_field umr[] = {
        {"frame", "i", KP_FRAME}, {"topic", "i", KP_TOPIC}, {"topic_id", "i", KP_TOPIC_ID}, {"partition", "i", KP_PARTITION},
        {"controller_epoch", "i", KP_CONTROLLER_EPOCH}, {"leader", "i", KP_LEADER}, {"leader_epoch", "i", KP_LEADER_EPOCH},
        {"partition_epoch", "i", KP_PARTITION_EPOCH}, {"isr", "+l", KP_LIST}, {"replicas", "+l", KP_LIST + 1},
        {"offline_replicas", "+l", KP_LIST + 2}, {NULL, NULL, 0}};
    static const kp_field lisr[] = {
        {"frame", "i", KP_FRAME}, {"topic", "i", KP_TOPIC}, {"topic_id", "i", KP_TOPIC_ID}, {"partition", "i", KP_PARTITION},
        {"controller_epoch", "i", KP_CONTROLLER_EPOCH}, {"leader", "i", KP_LEADER}, {"leader_epoch", "i", KP_LEADER_EPOCH},
        {"partition_epoch", "i", KP_PARTITION_EPOCH}, {"isr", "+l", KP_LIST}, {"replicas", "+l", KP_LIST + 1},
        {"adding_replicas", "+l", KP_LIST + 2}, {"removing_replicas", "+l", KP_LIST + 3}, {"is_new", "b", KP_FLAG},
        {"leader_recovery_state", "c", KP_RECOVERY}, {NULL, NULL, 0}};
    static const kp_field sr[] = {
        {"frame", "i", KP_FRAME}, {"topic", "i", KP_TOPIC}, {"partition", "i", KP_PARTITION},
        {"leader_epoch", "i", KP_LEADER_EPOCH}, {"delete_partition", "b", KP_FLAG}, {NULL, NULL, 0}};
    static const kp_field errors[] = {
        {"frame", "i", KP_FRAME}, {"topic", "i", KP_TOPIC}, {"topic_id", "i", KP_TOPIC_ID}, {"partition", "i", KP_PARTITION},
        {"error_code", "s", KP_ERROR}, {NULL, NULL, 0}};
    return layout == KP_UMR ? umr : layout == KP_LISR ? lisr : layout == KP_SR ? sr : errors;
}

static int64_t kp_field_count(int layout) {
    int64_t n = 0;
    while (kp_fields(layout)[n].name) n++;
    return n;
}

static void kp_schema_release(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++)
        if (s->children[i]) {
            if (s->children[i]->release) s->children[i]->release(s->children[i]);
            free(s->children[i]);
        }
    free(s->children);
    if (s->dictionary) {
        if (s->dictionary->release) s->dictionary->release(s->dictionary);
        free(s->dictionary);
    }
    s->release = NULL;
}

static int kp_schema_node(struct ArrowSchema *s, const char *name, const char *format, int64_t children) {
    memset(s, 0, sizeof *s);
    s->name = name;
    s->format = format;
    s->flags = ARROW_FLAG_NULLABLE;
    s->release = kp_schema_release;
    if (children == 0) return 0;
    s->children = (struct ArrowSchema **)calloc((size_t)children, sizeof *s->children);
    if (s->children == NULL) return -1;
    s->n_children = children;
    for (int64_t i = 0; i < children; i++)
        if ((s->children[i] = (struct ArrowSchema *)calloc(1, sizeof *s)) == NULL) return -1;
    return 0;
}

static int kp_schema_of(int layout, struct ArrowSchema *s) {
    const kp_field *f = kp_fields(layout);
    int64_t n = kp_field_count(layout);
    if (kp_schema_node(s, "", "+s", n)) goto none;
    s->flags = 0;
    for (int64_t i = 0; i < n; i++) {
        struct ArrowSchema *c = s->children[i];
        if (kp_schema_node(c, f[i].name, f[i].format, f[i].column >= KP_LIST)) goto none;
        if (f[i].column >= KP_LIST) kp_schema_node(c->children[0], "item", "i", 0);
        if (f[i].column == KP_TOPIC || f[i].column == KP_TOPIC_ID) {
            if ((c->dictionary = (struct ArrowSchema *)calloc(1, sizeof *c)) == NULL) goto none;
            kp_schema_node(c->dictionary, "", f[i].column == KP_TOPIC ? "u" : "w:16", 0);
        }
    }
    return 0;
none:
    kp_schema_release(s);
    return -1;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------- */

/* Every node holds the batch: a consumer may keep one column and let the others go. */
static void kp_array_release(struct ArrowArray *a) {
    for (int64_t i = 0; i < a->n_children; i++)
        if (a->children[i]) {
            if (a->children[i]->release) a->children[i]->release(a->children[i]);
            free(a->children[i]);
        }
    free(a->children);
    if (a->dictionary) {
        if (a->dictionary->release) a->dictionary->release(a->dictionary);
        free(a->dictionary);
    }
    free((void *)a->buffers);
    kp_batch_drop((kp_batch *)a->private_data);
    a->release = NULL;
}

static int kp_array_node(struct ArrowArray *a, kp_batch *b, int64_t length, int64_t children, int64_t buffers) {
    memset(a, 0, sizeof *a);
    __atomic_add_fetch(&b->references, 1, __ATOMIC_RELAXED);
    a->private_data = b;
    a->length = length;
    a->n_buffers = buffers;
    a->release = kp_array_release;
    if ((a->buffers = (const void **)calloc((size_t)buffers, sizeof(void *))) == NULL) return -1;
    if (children == 0) return 0;
    if ((a->children = (struct ArrowArray **)calloc((size_t)children, sizeof *a->children)) == NULL) return -1;
    a->n_children = children;
    for (int64_t i = 0; i < children; i++)
        if ((a->children[i] = (struct ArrowArray *)calloc(1, sizeof *a)) == NULL) return -1;
    return 0;
}

static int64_t kp_unset(const uint8_t *bits, int64_t n) {
    int64_t set = 0;
    for (int64_t i = 0; i < (n + 7) / 8; i++) set += __builtin_popcount(bits[i]);
    return n - set;
}

static int kp_array_column(struct ArrowArray *a, kp_batch *b, int column) {
    int64_t n = b->rows;
    if (column >= KP_LIST) {
        int k = column - KP_LIST;
        if (kp_array_node(a, b, n, 1, 2) || kp_array_node(a->children[0], b, b->used[k], 0, 2)) return -1;
        a->buffers[1] = b->offsets[k];
        a->children[0]->buffers[1] = b->ids[k];
        return 0;
    }
    if (kp_array_node(a, b, n, 0, 2)) return -1;
    if (column == KP_FLAG) a->buffers[1] = b->flag;
    else if (column == KP_RECOVERY) a->buffers[1] = b->recovery;
    else if (column == KP_ERROR) a->buffers[1] = b->error;
    else a->buffers[1] = b->ints[column == KP_TOPIC_ID ? KP_TOPIC : column];
    if (column != KP_TOPIC && column != KP_TOPIC_ID) return 0;
    int id = column == KP_TOPIC_ID;
    if (b->valid[id] && (a->null_count = kp_unset(b->valid[id], n)) > 0) a->buffers[0] = b->valid[id];
    if ((a->dictionary = (struct ArrowArray *)calloc(1, sizeof *a)) == NULL) return -1;
    if (kp_array_node(a->dictionary, b, b->topics, 0, id ? 2 : 3)) return -1;
    a->dictionary->buffers[1] = id ? (const void *)b->topic_ids : (const void *)b->name_ends;
    if (!id) a->dictionary->buffers[2] = b->names;
    return 0;
}

static int kp_array_of(kp_batch *b, struct ArrowArray *a) {
    const kp_field *f = kp_fields(b->layout);
    int64_t n = kp_field_count(b->layout);
    int bad = kp_array_node(a, b, b->rows, n, 1);
    for (int64_t i = 0; i < n && !bad; i++) bad = kp_array_column(a->children[i], b, f[i].column);
    if (bad) kp_array_release(a);
    return bad;
}

/* ---- a stream of one batch, for consumers that only take streams ------------------------------------------------------ */

typedef struct { kp_batch *batch; int given; } kp_stream;

static int kp_stream_schema(struct ArrowArrayStream *s, struct ArrowSchema *out) {
    return kp_schema_of(((kp_stream *)s->private_data)->batch->layout, out) ? 12 : 0;
}

static int kp_stream_next(struct ArrowArrayStream *s, struct ArrowArray *out) {
    kp_stream *own = (kp_stream *)s->private_data;
    if (own->given) { memset(out, 0, sizeof *out); return 0; }
    own->given = 1;
    return kp_array_of(own->batch, out) ? 12 : 0;
}

static const char *kp_stream_error(struct ArrowArrayStream *s) { (void)s; return "no memory"; }

static void kp_stream_release(struct ArrowArrayStream *s) {
    kp_batch_drop(((kp_stream *)s->private_data)->batch);
    free(s->private_data);
    s->release = NULL;
}

static int kp_stream_of(kp_batch *b, struct ArrowArrayStream *s) {
    kp_stream *own = (kp_stream *)calloc(1, sizeof *own);
    if (own == NULL) return -1;
    __atomic_add_fetch(&b->references, 1, __ATOMIC_RELAXED);
    own->batch = b;
    s->get_schema = kp_stream_schema;
    s->get_next = kp_stream_next;
    s->get_last_error = kp_stream_error;
    s->release = kp_stream_release;
    s->private_data = own;
    return 0;
}

#endif
