/* Columns from another library by Arrow's C data interface: checked, and copied into a batch of ours.
 *
 * No value is read before the array is known to fit its schema, and offsets and codes are checked on the copy: memory
 * that its owner changes meanwhile gives wrong rows or an error, never a read out of bounds.
 */
#ifndef KPROTO_ARROW_READ_H
#define KPROTO_ARROW_READ_H

#include "arrow.h"

enum kp_trouble {
    KP_FINE, KP_NO_COLUMN, KP_BAD_TYPE, KP_UNFIT, KP_NULL_ROW, KP_BAD_OFFSETS, KP_BAD_CODE, KP_LONG_NAME, KP_RECOVERING,
    KP_MANY, KP_FLAGS_DIFFER, KP_OUT_OF_MEMORY
};
/* The first problem in the columns: its column and row, and the number or Arrow format that shows it. */
typedef struct {
    enum kp_trouble trouble;
    const char *column, *expected, *format;
    int64_t row, value;
} kp_problem;

static KP_COLD int kp_problem_at(kp_problem *x, enum kp_trouble trouble, const char *column, int64_t row, int64_t value) {
    x->trouble = trouble;
    x->column = column;
    x->row = row;
    x->value = value;
    return -1;
}

static KP_COLD int kp_bad_type(kp_problem *x, const char *column, const char *expected, const char *format) {
    x->expected = expected;
    x->format = format ? format : "";
    return kp_problem_at(x, KP_BAD_TYPE, column, 0, 0);
}

/* Whether an array is built as its schema says, and holds `need` values at least. */
static int kp_array_fits(const struct ArrowSchema *s, const struct ArrowArray *a, int64_t buffers, int64_t children, int64_t need) {
    if (s == NULL || a == NULL || s->format == NULL || a->release == NULL || a->buffers == NULL || a->n_buffers != buffers) return 0;
    if (s->n_children != children || a->n_children != children || (s->dictionary == NULL) != (a->dictionary == NULL)) return 0;
    if (children && (s->children == NULL || a->children == NULL)) return 0;
    for (int64_t i = 0; i < children; i++)
        if (s->children[i] == NULL || a->children[i] == NULL) return 0;
    if (a->offset < 0 || a->length < 0 || a->length < need || a->length > (INT64_MAX >> 5) || a->offset > (INT64_MAX >> 5)) return 0;
    return a->buffers[0] != NULL || a->null_count <= 0;
}

static int kp_no_nulls(const struct ArrowArray *a, int64_t first, int64_t n, const char *column, kp_problem *x) {
    const uint8_t *bits = (const uint8_t *)a->buffers[0];
    if (bits == NULL) return 0;
    for (int64_t i = first; i < first + n; i++)
        if (!(bits[i >> 3] >> (i & 7) & 1)) return kp_problem_at(x, KP_NULL_ROW, column, i - first, 0);
    return 0;
}

static int kp_format_is(const struct ArrowSchema *s, const char *format) {
    return s->format != NULL && strcmp(s->format, format) == 0 && s->dictionary == NULL;
}

static int64_t kp_child_named(const struct ArrowSchema *s, const char *name) {
    for (int64_t i = 0; i < s->n_children; i++)
        if (s->children[i]->name && strcmp(s->children[i]->name, name) == 0) return i;
    return -1;
}

/* ---- columns of numbers and lists --------------------------------------------------------------------------------- */

static int kp_copy_list(kp_batch *b, int k, const char *column, const struct ArrowSchema *s, const struct ArrowArray *a,
                        int64_t at, kp_problem *x) {
    const struct ArrowSchema *item = s->children[0];
    const struct ArrowArray *ids = a->children[0];
    int32_t *to = b->offsets[k];
    if (!kp_format_is(item, "i")) return kp_bad_type(x, column, "list<int32>", item->dictionary ? "dictionary" : item->format);
    if (!kp_array_fits(item, ids, 2, 0, 0)) return kp_problem_at(x, KP_UNFIT, column, 0, 0);
    b->used[k] = to[0] = 0;
    if (b->rows == 0) return 0;
    memcpy(to, (const int32_t *)a->buffers[1] + at, 4 * (size_t)(b->rows + 1));
    const int32_t first = to[0];
    if (first < 0) return kp_problem_at(x, KP_BAD_OFFSETS, column, 0, first);
    for (int64_t i = 0; i < b->rows; i++)
        if (to[i + 1] < to[i]) return kp_problem_at(x, KP_BAD_OFFSETS, column, i, to[i + 1]);
    if (to[b->rows] > ids->length) return kp_problem_at(x, KP_BAD_OFFSETS, column, b->rows - 1, to[b->rows]);
    for (int64_t i = 0; i <= b->rows; i++) to[i] -= first;
    const int64_t n = to[b->rows];
    if (n && ids->buffers[1] == NULL) return kp_problem_at(x, KP_UNFIT, column, 0, 0);
    if (kp_no_nulls(ids, ids->offset + first, n, column, x)) return -1;
    if (n + KP_SLACK > b->ids_capacity[k]) {
        if (kp_resize(&b->ids[k], n + KP_SLACK, 4)) return kp_problem_at(x, KP_OUT_OF_MEMORY, column, 0, 0);
        b->ids_capacity[k] = n + KP_SLACK;
    }
    if (n) memcpy(b->ids[k], (const int32_t *)ids->buffers[1] + ids->offset + first, 4 * (size_t)n);
    b->used[k] = n;
    return 0;
}

static int kp_copy_column(kp_batch *b, const kp_field *f, const struct ArrowSchema *s, const struct ArrowArray *a,
                          int64_t at, kp_problem *x) {
    static const char *const expected[] = {"int32", "bool", "int8", "list<int32>"};
    const int list = f->column >= KP_LIST, kind = list ? 3 : f->column == KP_FLAG ? 1 : f->column == KP_RECOVERY ? 2 : 0;
    const size_t n = (size_t)b->rows;
    if (!kp_format_is(s, f->format)) return kp_bad_type(x, f->name, expected[kind], s->dictionary ? "dictionary" : s->format);
    if (!kp_array_fits(s, a, 2, list, at + b->rows)) return kp_problem_at(x, KP_UNFIT, f->name, 0, 0);
    at += a->offset;
    if (n && a->buffers[1] == NULL) return kp_problem_at(x, KP_UNFIT, f->name, 0, 0);
    if (kp_no_nulls(a, at, b->rows, f->name, x)) return -1;
    if (list) return kp_copy_list(b, f->column - KP_LIST, f->name, s, a, at, x);
    if (n == 0) return 0;
    if (kind == 0) memcpy(b->ints[f->column], (const int32_t *)a->buffers[1] + at, 4 * n);
    else if (kind == 2) memcpy(b->recovery, (const int8_t *)a->buffers[1] + at, n);
    else
        for (int64_t i = 0; i < b->rows; i++)
            b->flag[i] = ((const uint8_t *)a->buffers[1])[(at + i) >> 3] >> ((at + i) & 7) & 1;
    return 0;
}

/* ---- topics --------------------------------------------------------------------------------------------------------- */

/* A column of strings or of 16-byte ids, plain or behind the codes of a dictionary. */
typedef struct {
    const char *column;
    const int32_t *codes;             /* NULL: plain */
    int64_t first, count;             /* the first value's place in its buffers, and how many there are */
    const void *ends;                 /* of strings: their offsets, */
    int wide;                         /* of 64 bits or of 32, */
    int64_t limit;                    /* and where the last one ends */
    const uint8_t *bytes;
} kp_values;

static inline int64_t kp_end_at(const kp_values *v, int64_t i) {
    return v->wide ? ((const volatile int64_t *)v->ends)[i] : ((const volatile int32_t *)v->ends)[i];
}

static int kp_values_of(kp_values *v, const char *column, int id, const struct ArrowSchema *s, const struct ArrowArray *a,
                        int64_t at, int64_t rows, kp_problem *x) {
    memset(v, 0, sizeof *v);
    v->column = column;
    if (s->dictionary) {
        if (s->format == NULL || (strcmp(s->format, "i") && strcmp(s->format, "I")))
            return kp_bad_type(x, column, "dictionary with int32 codes", s->format);
        if (!kp_array_fits(s, a, 2, 0, at + rows) || (rows && a->buffers[1] == NULL)) return kp_problem_at(x, KP_UNFIT, column, 0, 0);
        if (kp_no_nulls(a, a->offset + at, rows, column, x)) return -1;
        v->codes = rows ? (const int32_t *)a->buffers[1] + a->offset + at : NULL;
        s = s->dictionary;
        a = a->dictionary;
        at = 0;
        rows = a->length;
    }
    const int wide = !id && kp_format_is(s, "U");
    if (id ? !kp_format_is(s, "w:16") : !wide && !kp_format_is(s, "u"))
        return kp_bad_type(x, column, id ? "fixed_size_binary(16), or a dictionary of it" : "string, or a dictionary of them", s->format);
    if (!kp_array_fits(s, a, id ? 2 : 3, 0, at + rows) || (rows && a->buffers[1] == NULL)) return kp_problem_at(x, KP_UNFIT, column, 0, 0);
    v->first = a->offset + at;
    v->count = rows;
    if (kp_no_nulls(a, v->first, rows, column, x)) return -1;
    v->bytes = (const uint8_t *)a->buffers[id ? 1 : 2];
    if (id || rows == 0) return 0;
    v->ends = a->buffers[1];
    v->wide = wide;
    v->limit = kp_end_at(v, v->first + rows);
    return v->limit < 0 || (v->limit && v->bytes == NULL) ? kp_problem_at(x, KP_BAD_OFFSETS, column, rows - 1, v->limit) : 0;
}

/* The index of a row's value among the values; -1 for a code without a value. */
static inline int64_t kp_value_at(const kp_values *v, int64_t row, kp_problem *x) {
    int64_t code = v->codes ? ((const volatile int32_t *)v->codes)[row] : row;
    return code < 0 || code >= v->count ? kp_problem_at(x, KP_BAD_CODE, v->column, row, code) : v->first + code;
}

static int kp_copy_topics(kp_batch *b, const kp_values *names, const kp_values *ids, kp_problem *x) {
    kp_reader r;
    int64_t last_name = -1, last_id = -1, code = -1;
    memset(&r, 0, sizeof r);
    for (int64_t row = 0; row < b->rows; row++) {
        int64_t name = kp_value_at(names, row, x), id = ids ? kp_value_at(ids, row, x) : 0;
        if (name < 0 || id < 0) return -1;
        if (name != last_name || id != last_id) {
            int64_t from = kp_end_at(names, name), n = kp_end_at(names, name + 1) - from;
            kp_ptr own_id = ids ? ids->bytes + 16 * id : b->layout == KP_SR ? NULL : kp_zero_id;
            if (from < 0 || n < 0 || from > names->limit || n > names->limit - from)
                return kp_problem_at(x, KP_BAD_OFFSETS, names->column, row, from);
            if (n > KP_MAX_STRING) return kp_problem_at(x, KP_LONG_NAME, names->column, row, n);
            code = kp_topic(&r, b, n ? names->bytes + from : kp_zero_id, n, own_id, code);
            if (code < 0) return kp_problem_at(x, r.code == KP_FULL ? KP_MANY : KP_OUT_OF_MEMORY, names->column, row, row);
            last_name = name;
            last_id = id;
        }
        b->ints[KP_TOPIC][row] = (int32_t)code;
    }
    return 0;
}

/* ---- a whole record batch --------------------------------------------------------------------------------------------- */

/* Fill a new batch with an array's rows; 0, or -1 with the problem. `frame` is ignored, `topic_id` may be missing. */
static int kp_copy_arrow(kp_batch *b, const struct ArrowSchema *s, const struct ArrowArray *a, kp_problem *x) {
    kp_values names, ids;
    int64_t i, at;
    if (s->format == NULL || strcmp(s->format, "+s") || s->dictionary) return kp_bad_type(x, "", "record batch or struct", s->format);
    if (!kp_array_fits(s, a, 1, s->n_children, 0)) return kp_problem_at(x, KP_UNFIT, "(the record batch)", 0, 0);
    if (a->length >= INT32_MAX - 1) return kp_problem_at(x, KP_MANY, "", 0, a->length);
    if (kp_no_nulls(a, a->offset, a->length, "(row)", x)) return -1;
    at = a->offset;
    if (a->length > b->capacity && kp_resize_rows(b, a->length)) return kp_problem_at(x, KP_OUT_OF_MEMORY, "", 0, 0);
    b->rows = a->length;
    for (const kp_field *f = kp_fields(b->layout); f->name; f++) {
        if (f->column == KP_FRAME || f->column == KP_TOPIC_ID) continue;
        i = kp_child_named(s, f->name);
        if (i < 0) return kp_problem_at(x, KP_NO_COLUMN, f->name, 0, 0);
        if (f->column != KP_TOPIC) {
            if (kp_copy_column(b, f, s->children[i], a->children[i], at, x)) return -1;
            continue;
        }
        if (kp_values_of(&names, "topic", 0, s->children[i], a->children[i], at, b->rows, x)) return -1;
        i = b->layout == KP_SR ? -1 : kp_child_named(s, "topic_id");
        if (i >= 0 && kp_values_of(&ids, "topic_id", 1, s->children[i], a->children[i], at, b->rows, x)) return -1;
        if (kp_copy_topics(b, &names, i >= 0 ? &ids : NULL, x)) return -1;
    }
    if (b->rows) memset(b->ints[KP_FRAME], 0, 4 * (size_t)b->rows);
    return kp_seal(b) ? kp_problem_at(x, KP_OUT_OF_MEMORY, "", 0, 0) : 0;
}

#endif
