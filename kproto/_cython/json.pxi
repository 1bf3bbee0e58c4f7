"""The scalars and arrays of Kafka's JSON form, read by Java's rules: nothing missing, nothing converted."""

ctypedef object (*json_reader)(object, int)


cdef list ids_list(const int32_t *p, int64_t n):
    cdef int64_t i
    return [p[i] for i in range(n)]


cdef str not_null(str value, str field):
    if value is None:
        raise EncodeError("null where it may not be", field)
    return value


cdef object json_object(object j):
    if type(j) is not dict and not isinstance(j, Mapping):  # the second question is slow
        raise EncodeError(f"expected an object, got {type(j).__name__}")
    return j


cdef object json_field(object j, str key):
    try:
        return json_object(j)[key]
    except KeyError:
        raise EncodeError(f"{key!r} is missing", snake_case(key)) from None


cdef int64_t json_whole(object j, str key, int64_t low, int64_t high) except? -1:
    cdef object value = json_field(j, key)
    if type(value) is not int:
        raise EncodeError(f"expected an int, got {type(value).__name__}", snake_case(key))
    if not low <= value <= high:
        raise OutOfRange(f"{value} is not within {low} and {high}", snake_case(key))
    return value


cdef int32_t json_int32(object j, str key) except? -1:
    return <int32_t>json_whole(j, key, INT32_MIN, INT32_MAX)


cdef int64_t json_int64(object j, str key) except? -1:
    return json_whole(j, key, INT64_MIN, INT64_MAX)


cdef int16_t json_int16(object j, str key) except? -1:
    return <int16_t>json_whole(j, key, INT16_MIN, INT16_MAX)


cdef int8_t json_int8(object j, str key) except? -1:
    """Java takes 128 to 256 too, less 128 (and the 128 that 256 leaves as -128)."""
    cdef int64_t value = json_whole(j, key, INT8_MIN, 256)
    return <int8_t>(value - 128 if value > INT8_MAX else value)


cdef bint json_bool(object j, str key) except -1:
    cdef object value = json_field(j, key)
    if type(value) is not bool:
        raise EncodeError(f"expected true or false, got {type(value).__name__}", snake_case(key))
    return value


cdef object json_text(object j, str key, bint nullable=False):
    cdef object value = json_field(j, key)
    if value is None and nullable:
        return None
    if not isinstance(value, str):
        raise EncodeError(f"expected text, got {type(value).__name__}", snake_case(key))
    return value


cdef object json_uuid(object j, str key):
    return uuid_from_json(json_field(j, key), snake_case(key))


cdef object json_array(object j, str key):
    cdef object value = json_field(j, key)
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"expected an array, got {type(value).__name__}", snake_case(key))
    return value


cdef object json_ids(object j, str key):
    cdef object values = json_array(j, key)
    for i, value in enumerate(values):
        if type(value) is not int:
            raise EncodeError(f"expected an int, got {type(value).__name__}", f"{snake_case(key)}[{i}]")
    return values


cdef list json_each(object j, str key, json_reader read, int version):
    cdef list out = []
    for i, element in enumerate(json_array(j, key)):
        try:
            out.append(read(element, version))
        except EncodeError as e:
            within(e, f"{snake_case(key)}[{i}]")
            raise
    return out


cdef dict head_to_json(ControlRequest m, int api, int version):
    """The fields before a request's partitions; a field that the version lacks is refused."""
    cdef dict j = {"controllerId": m.controller_id}
    check_fields(m, api, version)
    if kraft_in(api, version):
        j["isKRaftController"] = m.is_kraft_controller
    if api == 6 and (<UpdateMetadataRequest>m).type:
        j["type"] = (<UpdateMetadataRequest>m).type
    j["controllerEpoch"] = m.controller_epoch
    if grouped_in(api, version):
        j["brokerEpoch"] = m.broker_epoch
    return j
