"""Unknown tagged fields, kept as bytes of the wire and written by Kafka's rules; a tuple is made when they are read."""


cdef tuple tags_tuple(bytes tags):
    """``(tag, data)`` for each kept field, in wire order; a tag of 2^31 or more is a negative int, as in Kafka."""
    cdef rp p, e
    cdef uint32_t tag = 0, size = 0
    cdef list out = []
    if tags is None:
        return ()
    p = <rp>PyBytes_AS_STRING(tags)
    e = p + PyBytes_GET_SIZE(tags)
    while p < e:
        p = kp_own_varint(kp_own_varint(p, &tag), &size)
        out.append((<int32_t>tag, <bytes>p[:size]))
        p += size
    return tuple(out)


cdef bytes varint_bytes(uint32_t value):
    cdef uint8_t buffer[5]
    return <bytes>buffer[:kp_put_varint(buffer, value) - buffer]


cdef bytes tags_kept(object fields):
    """The bytes for pairs of tag and data; Kafka's rules for them are checked when they are encoded."""
    cdef list parts = []
    if isinstance(fields, (str, bytes, dict)):
        raise TypeError(f"unknown_tagged_fields: expected pairs of tag and bytes, got {type(fields).__name__}")
    for pair in fields:
        try:
            tag, data = pair
            data = bytes(memoryview(data))
        except (TypeError, ValueError):
            raise TypeError(f"unknown_tagged_fields: expected pairs of tag and bytes, got {pair!r}") from None
        if len(data) > INT32_MAX:
            raise OutOfRange(f"a tagged field of {len(data)} bytes", "unknown_tagged_fields")
        parts.append(varint_bytes(<uint32_t>int32(tag, "unknown_tagged_fields")))
        parts.append(varint_bytes(<uint32_t>len(data)))
        parts.append(data)
    return b"".join(parts) if parts else None


cdef inline int put_tags(kp_writer *w, bytes tags, bint flexible, int version) except -1:
    """Write a struct's tagged section, where no tag is known."""
    if tags is not None:
        return put_tagged(w, NULL, 0, tags, flexible, version)
    return kp_add_count(w, -1, True) if flexible else 0


cdef int put_tagged(kp_writer *w, const uint8_t *known, int64_t known_size, bytes tags, bint flexible,
                    int version) except -1:
    """Write a tagged section: the bytes of one known field (none: NULL), then the kept fields."""
    cdef uint32_t count = 0
    cdef int32_t bad = 0
    cdef int64_t size = 0
    if not flexible:
        raise FieldNotInVersion(f"version {version} has no tagged fields", "unknown_tagged_fields")
    if tags is not None:
        size = kp_own_tags_size(<rp>PyBytes_AS_STRING(tags), PyBytes_GET_SIZE(tags), &count, &bad)
    if size == -2:
        raise OutOfRange(f"tag {bad} is above the highest possible tag", "unknown_tagged_fields")
    if size < 0:
        raise EncodeError(f"tag {bad} does not come after those before it", "unknown_tagged_fields")
    kp_reserve(w, 5 + known_size + size)
    w.q = kp_put_varint(w.q, count + (known != NULL))
    if known != NULL:
        memcpy(w.q, known, known_size)
        w.q += known_size
    if tags is not None:
        w.q = kp_put_own_tags(w.q, <rp>PyBytes_AS_STRING(tags), PyBytes_GET_SIZE(tags))
    return 0
