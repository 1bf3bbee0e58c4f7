"""Request headers, versions 0 to 2, and response headers, versions 0 and 1."""


@cython.final
cdef class RequestHeader(Tagged):
    """The header before a request's body. ``client_id`` (versions 1 and later) may be None, as on the wire."""

    kind = "request_header"
    _fields = ("request_api_key", "request_api_version", "correlation_id", "client_id", "unknown_tagged_fields")

    def __init__(self, *, request_api_key=0, request_api_version=0, correlation_id=0, client_id="",
                 unknown_tagged_fields=()):
        self.request_api_key = int16(request_api_key, "request_api_key")
        self.request_api_version = int16(request_api_version, "request_api_version")
        self.correlation_id = int32(correlation_id, "correlation_id")
        self.client_id = as_text_or_none(client_id, "client_id")
        self.tags = tags_kept(unknown_tagged_fields)

    @property
    def client_id_or_empty(self):
        """The client id as Kafka's own parser presents it: null becomes the empty string."""
        return "" if self.client_id is None else self.client_id

    def to_json(self, version):
        j = {"requestApiKey": self.request_api_key, "requestApiVersion": self.request_api_version,
             "correlationId": self.correlation_id}
        if checked_header_version(version, 2) >= 1:
            j["clientId"] = self.client_id
        return j

    @classmethod
    def from_json(cls, json, version):
        version = checked_header_version(version, 2)
        return cls(request_api_key=json_int16(json, "requestApiKey"),
                   request_api_version=json_int16(json, "requestApiVersion"),
                   correlation_id=json_int32(json, "correlationId"),
                   client_id=json_text(json, "clientId", True) if version >= 1 else "")


@cython.final
cdef class ResponseHeader(Tagged):
    """The header before a response's body."""

    kind = "response_header"
    _fields = ("correlation_id", "unknown_tagged_fields")

    def __init__(self, *, correlation_id=0, unknown_tagged_fields=()):
        self.correlation_id = int32(correlation_id, "correlation_id")
        self.tags = tags_kept(unknown_tagged_fields)

    def to_json(self, version):
        checked_header_version(version, 1)
        return {"correlationId": self.correlation_id}

    @classmethod
    def from_json(cls, json, version):
        checked_header_version(version, 1)
        return cls(correlation_id=json_int32(json, "correlationId"))


cdef int checked_header_version(object version, int highest) except -1:
    cdef int64_t v = small(version, "version")
    if 0 <= v <= highest:
        return <int>v
    raise UnsupportedVersion(-1, version, "request header" if highest == 2 else "response header", 0, highest)


cdef RequestHeader read_request_header(kp_reader *r, int version):
    cdef RequestHeader h = RequestHeader.__new__(RequestHeader)
    cdef rp p = r.base, begin = NULL, end = NULL
    cdef int64_t length = 0
    h.client_id = ""
    if r.end - p < 8:
        kp_fault_group(r, p, "request_api_key:2,request_api_version:2,correlation_id:4")
        return None
    h.request_api_key = kp_i16(p)
    h.request_api_version = kp_i16(p + 2)
    h.correlation_id = kp_i32(p + 4)
    p += 8
    if version >= 1:
        p = kp_string(r, p, r.end, False, True, &length, "client_id")
        if p == NULL:
            return None
        h.client_id = text(p, length)
        if length > 0:
            p += length
    if version >= 2:
        p = kp_tags(r, p, r.end, &begin, &end)
        if p == NULL:
            return None
        h.tags = kept(begin, end)
    r.at = p
    return h


cdef ResponseHeader read_response_header(kp_reader *r, int version):
    cdef ResponseHeader h = ResponseHeader.__new__(ResponseHeader)
    cdef rp p = r.base, begin = NULL, end = NULL
    if r.end - p < 4:
        kp_fault_group(r, p, "correlation_id:4")
        return None
    h.correlation_id = kp_i32(p)
    p += 4
    if version >= 1:
        p = kp_tags(r, p, r.end, &begin, &end)
        if p == NULL:
            return None
        h.tags = kept(begin, end)
    r.at = p
    return h


cdef int write_request_header(kp_writer *w, RequestHeader h, int version) except -1:
    kp_add16(w, h.request_api_key)
    kp_add16(w, h.request_api_version)
    kp_add32(w, h.correlation_id)
    if version >= 1:
        put_text(w, h.client_id, False, "client_id", True)
    return put_tags(w, h.tags, version >= 2, version)


cdef int write_response_header(kp_writer *w, ResponseHeader h, int version) except -1:
    kp_add32(w, h.correlation_id)
    return put_tags(w, h.tags, version >= 1, version)
