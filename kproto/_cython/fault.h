/* A reader: its bytes, and the first fault in them with its kind, place, field and enclosing structs. */
#ifndef KPROTO_FAULT_H
#define KPROTO_FAULT_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KP_LIKELY(x) __builtin_expect(!!(x), 1)
#define KP_COLD __attribute__((noinline, cold))
#define KP_INLINE static inline __attribute__((always_inline))   /* for the functions that read and write rows */

typedef const uint8_t *kp_ptr;

enum kp_code {
    KP_OK, KP_SHORT, KP_SHORT_STRING, KP_SHORT_ARRAY, KP_SHORT_TAG, KP_VARINT_LONG, KP_NULL, KP_STRING_LONG,
    KP_TAG_NOT_VALID, KP_TAG_NEGATIVE, KP_FULL, KP_NO_MEMORY,
    KP_STRICT_TRAILING, KP_STRICT_UTF8, KP_STRICT_VARINT, KP_STRICT_BOOL, KP_STRICT_TAG_ORDER, KP_STRICT_TAG_SIZE,
    KP_STRICT_NULL, KP_STRICT_TAG_COUNT
};

#define KP_DEPTH 4

typedef struct {
    kp_ptr base, end;
    int strict;
    int plain;                     /* false once bytes were read that Kafka would write differently, or not at all */
    void *owner;                   /* the bytes object around them; NULL if parts must be kept as copies */
    /* the fault, if there is one: its kind, its place, a number for its text, the field, and the enclosing structs */
    enum kp_code code;
    kp_ptr at;
    int64_t value;
    const char *field;
    int field_length;
    int depth;
    const char *outer[KP_DEPTH];
    int64_t index[KP_DEPTH];
} kp_reader;

/* ---- faults -------------------------------------------------------------------------------------------------- */

static KP_COLD void kp_note_fault(kp_reader *r, enum kp_code code, kp_ptr at, int64_t value, const char *field) {
    r->code = code;
    r->at = at;
    r->value = value;
    r->field = field;
    r->field_length = (int)strlen(field);
}

/* A group of fields of fixed size is cut: finds the cut field in "name:size,name:size". */
static KP_COLD void kp_note_fault_group(kp_reader *r, kp_ptr p, const char *layout) {
    for (;;) {
        const char *colon = strchr(layout, ':');
        int size = 0;
        const char *s = colon + 1;
        while (*s >= '0' && *s <= '9') size = size * 10 + (*s++ - '0');
        if (r->end - p < size || *s == 0) {
            kp_note_fault(r, KP_SHORT, p, size, "");
            r->field = layout;
            r->field_length = (int)(colon - layout);
            return;
        }
        p += size;
        layout = s + 1;
    }
}

/* The fault lies inside element `index` of the array `outer` (no index: -1). */
static KP_COLD void kp_note_inside(kp_reader *r, const char *outer, int64_t index) {
    if (r->depth < KP_DEPTH) {
        r->outer[r->depth] = outer;
        r->index[r->depth++] = index;
    }
}

/* The same, returning the NULL that a reader function returns then, in sight of the compiler. */
KP_INLINE kp_ptr kp_fault(kp_reader *r, enum kp_code code, kp_ptr at, int64_t value, const char *field) {
    kp_note_fault(r, code, at, value, field);
    return NULL;
}

KP_INLINE kp_ptr kp_fault_group(kp_reader *r, kp_ptr p, const char *layout) {
    kp_note_fault_group(r, p, layout);
    return NULL;
}

KP_INLINE kp_ptr kp_inside(kp_reader *r, const char *outer, int64_t index) {
    kp_note_inside(r, outer, index);
    return NULL;
}

#endif
