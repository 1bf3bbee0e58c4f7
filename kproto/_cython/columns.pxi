"""Partition rows as Arrow columns: many frames into one batch, with the GIL released for the large ones."""

cdef enum:
    LARGE = 16384  # bytes of a frame from which on releasing the interpreter's lock is worth its time


cdef inline void fill_frame(kp_batch *b, int64_t first, int32_t frame) noexcept nogil:
    cdef int64_t i
    for i in range(first, b.rows):
        b.ints[KP_FRAME][i] = frame


cdef rp frame_states(kp_reader *r, kp_batch *b, rp p, int api, bint response, int version, bint flag) noexcept nogil:
    """The partition rows of one message, from their count on."""
    cdef int64_t n
    if response:
        return kp_errors(r, b, p, version >= (4 if api == 4 else 2), api == 4 and version >= 5)
    n = states_count(r, &p, api, version)
    if n < 0:
        return NULL
    if api == 6:
        return kp_umr_states(r, b, p, n, version)
    if api == 4:
        return kp_lisr_states(r, b, p, n, version)
    return kp_sr_states(r, b, p, n, version, flag)


cdef object frame_into(kp_reader *r, kp_batch *b, int api, bint response, int version):
    """Read one message into a batch: its rows there, all else into a message without rows. None after a fault."""
    cdef rp p
    cdef StopReplicaResponse sr_answer
    cdef LeaderAndIsrResponse lisr_answer
    cdef ControlRequest request = None
    cdef Message m
    cdef bint flag = False, paused
    if not response:
        m = request = new_request(api)
        p = read_head(r, request, api, version)
        flag = api == 5 and (<StopReplicaRequest>request).delete_partitions
    elif api == 6:
        return umr_read_response(r, version)
    elif api == 4:
        m = lisr_answer = LeaderAndIsrResponse.__new__(LeaderAndIsrResponse)
        p = read_error_code(r, &lisr_answer.error_code)
    else:
        m = sr_answer = StopReplicaResponse.__new__(StopReplicaResponse)
        p = read_error_code(r, &sr_answer.error_code)
    m.version = version
    if p == NULL:
        return None
    if r.end - p >= LARGE:
        with nogil:
            p = frame_states(r, b, p, api, response, version, flag)
    else:
        p = frame_states(r, b, p, api, response, version, flag)
    if p == NULL:
        return None
    if not response:
        paused = kp_pause_collector()
        try:
            p = read_tail(r, p, request, api, version)
        finally:
            kp_resume_collector(paused)
    elif flexible_in(api, version):
        p = read_kept(r, p, m)
    if p == NULL:
        return None
    r.at = p
    return m


@cython.final
cdef class Columns:
    """Partition rows of one or many frames as Arrow columns, which Arrow libraries take without a copy (PyCapsules).

    Requests: ``frame`` (int32, counted from 0), ``topic`` and ``topic_id`` (dictionaries with shared int32 codes),
    ``partition``, ``controller_epoch``, ``leader``, ``leader_epoch``, ``partition_epoch`` (int32; UpdateMetadata's
    ``zk_version``), ``isr``, ``replicas`` and ``offline_replicas`` or ``adding_replicas`` and ``removing_replicas``
    (lists of int32), ``is_new`` (bool), ``leader_recovery_state`` (int8). StopReplica: ``frame``, ``topic``,
    ``partition``, ``leader_epoch``, ``delete_partition``. Responses: ``frame``, ``topic`` or ``topic_id`` (the other
    is null), ``partition``, ``error_code`` (int16). Fields that a version lacks hold Kafka's defaults.

    Attributes:
        message: Of ``decode_columns``: the message that the rows were taken out of; else None.
    """

    cdef kp_batch *batch
    cdef readonly object message

    def __init__(self):
        raise TypeError("columns come from decode_columns, ColumnsBuilder or Columns.from_sequences")

    def __dealloc__(self):
        kp_batch_drop(self.batch)

    cdef kp_batch *held(self) except NULL:
        if self.batch == NULL:
            raise ValueError("these columns were never filled")
        return self.batch

    def __len__(self):
        return self.held().rows

    @property
    def names(self):
        """The columns' names, in order."""
        cdef const kp_field *f = kp_fields(self.held().layout)
        return tuple([f[i].name.decode() for i in range(kp_field_count(self.batch.layout))])

    @staticmethod
    def from_sequences(api_key, **columns):
        """The columns of a request from sequences of the same length, by name.

        ``topic`` (str) and ``partition`` must be given; missing columns hold Kafka's defaults, zero ids
        and empty lists. Lists are sequences of sequences. Buffers of int32 are copied as they are.

        Raises:
            OutOfRange: A number that its column cannot hold.
            TypeError, ValueError: Columns of other names, types or lengths.
        """
        return columns_of(checked_api(api_key), columns)

    def __repr__(self):
        return f"Columns({len(self)} rows: {', '.join(self.names)})"

    def __arrow_c_schema__(self):
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if schema == NULL or kp_schema_of(self.held().layout, schema):
            free(schema)
            raise MemoryError
        return PyCapsule_New(schema, "arrow_schema", drop_schema)

    def __arrow_c_array__(self, requested_schema=None):
        cdef object schema = self.__arrow_c_schema__()
        cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array == NULL or kp_array_of(self.batch, array):
            free(array)
            raise MemoryError
        return schema, PyCapsule_New(array, "arrow_array", drop_array)

    def __arrow_c_stream__(self, requested_schema=None):
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
        if stream == NULL or kp_stream_of(self.held(), stream):
            free(stream)
            raise MemoryError
        return PyCapsule_New(stream, "arrow_array_stream", drop_stream)


cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


@cython.final
cdef class ColumnsBuilder:
    """Frames of one API and direction, appended one after the other into one batch of rows.

    A frame that cannot be read raises and leaves the batch as it was before it. Frames of a builder may be of
    different versions. Large frames are read with the GIL released; a builder serves one thread at a time.

    Args:
        api_key: 4, 5 or 6.
        kind: ``request`` or ``response``.
        strict: As for ``decode_request``.

    Attributes:
        message: Of the frame appended last: its message, without the rows; None before the first.
        frames: The number of frames that were appended.
    """

    cdef kp_batch *batch
    cdef kp_mark last  # where the rows of the frame appended last begin
    cdef readonly int api_key
    cdef readonly str kind
    cdef readonly bint strict
    cdef readonly object message
    cdef readonly int32_t frames
    cdef bint response, busy, has_last

    def __init__(self, api_key, kind="request", *, bint strict=False):
        cdef int api = checked_api(api_key)
        cdef bint response = kind_of(kind) == RESPONSE
        if self.batch != NULL:
            raise TypeError("a builder is made once")
        self.api_key = api
        self.kind = "response" if response else "request"
        self.strict = strict
        self.response = response
        self.renew()

    cdef int renew(self) except -1:
        cdef kp_batch *fresh = kp_batch_new(KP_ERRORS if self.response else self.api_key)
        if fresh == NULL:
            raise MemoryError
        kp_batch_drop(self.batch)
        self.batch = fresh
        kp_mark_set(fresh, &self.last)
        self.has_last = False
        return 0

    def __dealloc__(self):
        kp_batch_drop(self.batch)

    cdef int ready(self) except -1:
        if self.batch == NULL:
            raise ValueError("this builder was never made")
        if self.busy:
            raise RuntimeError("another thread is appending to this builder")
        return 0

    def __len__(self):
        return 0 if self.batch == NULL else self.batch.rows

    @property
    def _collisions(self):
        """How many other topics' slots of the hash table were looked at so far: never many, whatever the names."""
        return 0 if self.batch == NULL else self.batch.collisions

    def append(self, version, data):
        """Read a message's rows.

        Returns:
            How many rows it had.

        Raises:
            DecodeError: The bytes are no such message.
            UnsupportedVersion: The API has no such version.
            ValueError: The batch is full (2**31 rows or ids).
        """
        cdef int v
        cdef Py_buffer view
        cdef kp_reader r
        cdef kp_mark mark
        cdef object message = None
        cdef int64_t rows
        self.ready()
        v = checked_version(self.api_key, version)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.ready()  # again: the arguments' own code has run, and may have used this builder
        except BaseException:
            PyBuffer_Release(&view)
            raise
        self.busy = True
        kp_mark_set(self.batch, &mark)
        try:
            r.base = r.at = <rp>view.buf
            r.end = r.base + view.len
            r.strict = self.strict
            r.owner = NULL  # a message without rows holds no frame
            r.code = KP_OK
            r.depth = 0
            message = frame_into(&r, self.batch, self.api_key, self.response, v)
            if r.code == KP_OK and self.strict and r.at != r.end:
                kp_fault(&r, KP_STRICT_TRAILING, r.at, r.end - r.at, "")
            if r.code != KP_OK:
                message = None
                raise fault_error(&r, self.api_key, v)
            fill_frame(self.batch, mark.rows, self.frames)
            rows = self.batch.rows - mark.rows
            self.frames += 1
            self.message = message
            self.last = mark
            self.has_last = True
        finally:
            if message is None:
                kp_mark_back(self.batch, &mark)
            self.busy = False
            PyBuffer_Release(&view)
        return rows

    @property
    def topic_count(self):
        """The number of topics of which the last frame has rows."""
        cdef int64_t n
        self.ready()
        n = kp_topics_in(self.batch, self.last.rows)
        if n < 0:
            raise MemoryError
        return n

    @property
    def common_replicas(self):
        """The replicas that all rows of the frame appended last have in common; none where rows have no replicas."""
        cdef int32_t found[KP_FEW_REPLICAS]
        cdef int64_t i, n, row, begin
        cdef set common = None, of_row
        self.ready()
        n = kp_common_replicas(self.batch, &self.last, found)
        if n >= 0:
            return [found[i] for i in range(n)]
        begin = self.last.used[1]
        for row in range(self.last.rows + 1, self.batch.rows + 1):
            of_row = {self.batch.ids[1][i] for i in range(begin, self.batch.offsets[1][row])}
            common = of_row if common is None else common & of_row
            begin = self.batch.offsets[1][row]
        return sorted(common)

    def drop_last(self):
        """Take the rows of the frame appended last out again; its message stays. A second call does nothing."""
        self.ready()
        if self.has_last:
            kp_mark_back(self.batch, &self.last)
            self.frames -= 1
            self.has_last = False

    def finish(self):
        """The columns of all frames appended; the builder is empty again."""
        cdef Columns out = Columns.__new__(Columns)
        self.ready()
        if kp_seal(self.batch):
            raise MemoryError
        out.batch, self.batch = self.batch, NULL
        self.renew()
        self.frames = 0
        self.message = None
        return out


def decode_columns(api_key, version, data, *, kind="request", bint strict=False):
    """Read one message's rows as columns.

    Args:
        api_key, version, data, strict: As for ``decode_request``.
        kind: ``request`` or ``response``.

    Returns:
        Its ``Columns``; their ``message`` holds all other fields.

    Raises:
        DecodeError: The bytes are no such message.
        UnsupportedApi, UnsupportedVersion: This codec does not know it.
    """
    cdef ColumnsBuilder builder = ColumnsBuilder(api_key, kind, strict=strict)
    cdef Columns out
    builder.append(version, data)
    message = builder.message
    out = builder.finish()
    out.message = message
    return out
