"""The base classes of messages and structs: checked fields, equality, a short repr, pickling."""

ctypedef kp_ptr rp

_BOOLS = frozenset(["is_kraft_controller", "is_new", "delete_partition", "delete_partitions"])
_NULLABLE = frozenset(["rack", "client_id"])


cdef int64_t whole(object value, int64_t low, int64_t high, str field) except? -1:
    """An int within bounds."""
    cdef int overflow = 0
    cdef int64_t x
    if not PyLong_Check(value):
        try:
            value = PyNumber_Index(value)
        except TypeError:
            raise TypeError(f"{field}: expected an int, got {type(value).__name__}") from None
    x = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or x < low or x > high:
        raise OutOfRange(f"{value} is not within {low} and {high}", field)
    return x


cdef inline int32_t int32(object value, str field) except? -1:
    return <int32_t>whole(value, INT32_MIN, INT32_MAX, field)


cdef inline int16_t int16(object value, str field) except? -1:
    return <int16_t>whole(value, INT16_MIN, INT16_MAX, field)


cdef inline int8_t int8(object value, str field) except? -1:
    return <int8_t>whole(value, INT8_MIN, INT8_MAX, field)


cdef bint boolean(object value, str field) except -1:
    if value is True:
        return 1
    if value is False:
        return 0
    if type(value).__name__ in ("bool", "bool_"):  # numpy's own
        return bool(value)
    raise TypeError(f"{field}: expected a bool, got {type(value).__name__}")


cdef str as_text(object value, str field):
    if type(value) is str:
        return <str>value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{field}: expected a str, got {type(value).__name__}")


cdef str as_text_or_none(object value, str field):
    return None if value is None else as_text(value, field)


cdef list as_list(object value, str field):
    """Return a list itself, and any other iterable as a new list."""
    if type(value) is list:
        return <list>value
    if isinstance(value, (str, bytes, dict)) or value is None:
        raise TypeError(f"{field}: expected a list, got {type(value).__name__}")
    try:
        return list(value)
    except TypeError:
        raise TypeError(f"{field}: expected a list, got {type(value).__name__}") from None


cdef int put_uuid(uint8_t *to, object value, str field) except -1:
    cdef bytes b
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"{field}: expected the 16 bytes of a UUID, got {type(value).__name__}")
    b = bytes(value)
    if len(b) != 16:
        raise OutOfRange(f"a UUID has 16 bytes, not {len(b)}", field)
    memcpy(to, PyBytes_AS_STRING(b), 16)
    return 0


cdef int within(object error, str place) except -1:
    """Add the enclosing element or struct to an EncodeError's path."""
    path = error.path
    error.path = f"{path}{place}" if place[0] == "[" else (f"{place}.{path}" if path else place)
    error.args = (error.reason, error.path)
    return 0


cdef int lacking(int version, str field) except -1:
    raise FieldNotInVersion(f"version {version} has no place for it", field)


cdef object _shown(object value):
    """Write a value for a repr: long lists are cut, so that a message of 200,000 partitions still fits a screen."""
    if isinstance(value, (list, tuple)) and len(value) > 6:
        inner = f"{', '.join([_shown(x) for x in value[:3]])}, ... {len(value)} in all"
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join([_shown(x) for x in value])}]"
    return repr(value)


def _rebuild(cls, values):
    """A struct from its fields' values, for pickle and copy."""
    version = values.pop("version", None)
    made = cls(**values)
    if version is not None:
        made.version = version
    return made


cdef class Struct:
    """A part of a message. Fields may be set; an invalid value raises ``OutOfRange`` or ``TypeError`` at once."""

    __hash__ = None
    _fields = ()

    def __setattr__(self, name, value):
        if is_read_only(self):
            raise AttributeError(
                f"{name}: partition_states is a read-only view; "
                "change the row in the message, or a copy.copy of this one"
            )
        if name == "version" and isinstance(self, Message):
            value = checked_version(self.api_key, value)
        if name in _BOOLS:
            value = boolean(value, name)
        elif value is None and name not in _NULLABLE:
            raise TypeError(f"{name}: may not be None")
        elif isinstance(value, float):
            raise TypeError(f"{name}: expected an int, got float")
        elif isinstance(value, str) and type(value) is not str:
            value = str.__str__(value)
        try:
            PyObject_GenericSetAttr(self, name, value)
        except OverflowError:
            raise OutOfRange(f"{value} does not fit", name) from None
        except TypeError as e:
            raise (e if str(e).startswith(name) else TypeError(f"{name}: {e}")) from None

    def __delattr__(self, name):
        raise AttributeError(f"{name}: a field cannot be deleted")

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        for name in self._fields:
            if getattr(self, name) != getattr(other, name):
                return False
        return True

    def __repr__(self):
        shown = []
        for name in self._fields:
            value = getattr(self, name)
            if name == "unknown_tagged_fields" and not value:
                continue
            shown.append(f"{name}={_shown(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self):
        from kproto.notebook import message_html

        return message_html(self)

    def __reduce__(self):
        return _rebuild, (type(self), {name: getattr(self, name) for name in self._fields})


cdef bint is_read_only(Struct row) noexcept:
    """Whether this is a row of a message's flat ``partition_states``."""
    cdef Block owner = None
    if type(row) is UpdateMetadataPartitionState:
        owner = (<UpdateMetadataPartitionState>row).owner
    elif type(row) is LeaderAndIsrPartitionState:
        owner = (<LeaderAndIsrPartitionState>row).owner
    return owner is not None and owner.read_only


cdef class Tagged(Struct):
    """A struct that keeps the tagged fields it does not know."""

    @property
    def unknown_tagged_fields(self):
        return tags_tuple(self.tags)

    @unknown_tagged_fields.setter
    def unknown_tagged_fields(self, value):
        self.tags = tags_kept(value)


cdef class Message(Tagged):
    """A whole request or response. ``version`` is the one it was read with; encoding names its own."""

    def __reduce__(self):
        values = {name: getattr(self, name) for name in self._fields}
        values["version"] = self.version
        return _rebuild, (type(self), values)

    def for_version(self, version):
        """The message as one who reads it in this version gets it: with the fields that the version has."""
        read = decode_request if self.kind == "request" else decode_response
        return read(self.api_key, version, encode(self, version))
