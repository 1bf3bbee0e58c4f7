"""The C layout of the codec: its classes' fields, and the wire primitives of ``_cython/wire.h``."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "_cython/wire.h" nogil:
    ctypedef const uint8_t *kp_ptr
    enum kp_code:
        KP_OK, KP_SHORT, KP_SHORT_STRING, KP_SHORT_ARRAY, KP_SHORT_TAG, KP_VARINT_LONG, KP_NULL, KP_STRING_LONG
        KP_TAG_NOT_VALID, KP_TAG_NEGATIVE, KP_FULL, KP_NO_MEMORY
        KP_STRICT_TRAILING, KP_STRICT_UTF8, KP_STRICT_VARINT, KP_STRICT_BOOL, KP_STRICT_TAG_ORDER, KP_STRICT_TAG_SIZE
        KP_STRICT_NULL, KP_STRICT_TAG_COUNT
    int KP_MAX_STRING
    ctypedef struct kp_reader:
        kp_ptr base
        kp_ptr end
        bint strict
        bint plain
        void *owner
        kp_code code
        kp_ptr at
        int64_t value
        const char *field
        int field_length
        int depth
        const char **outer
        int64_t *index
    kp_ptr kp_fault(kp_reader *, kp_code, kp_ptr, int64_t, const char *) noexcept
    kp_ptr kp_fault_group(kp_reader *, kp_ptr, const char *) noexcept
    kp_ptr kp_inside(kp_reader *, const char *, int64_t) noexcept
    void kp_use_large_pages(void *, int64_t) noexcept
    int16_t kp_i16(kp_ptr) noexcept
    int32_t kp_i32(kp_ptr) noexcept
    int64_t kp_i64(kp_ptr) noexcept
    void kp_put16(uint8_t *, int16_t) noexcept
    void kp_put32(uint8_t *, int32_t) noexcept
    void kp_put64(uint8_t *, int64_t) noexcept
    void kp_ids(int32_t *, kp_ptr, int64_t) noexcept
    int KP_SLACK
    void kp_ids_loose(int32_t *, kp_ptr, int64_t, kp_ptr) noexcept
    uint8_t *kp_put_ids(uint8_t *, const int32_t *, int64_t) noexcept
    uint8_t *kp_put_ids_loose(uint8_t *, const int32_t *, int64_t) noexcept
    uint8_t *kp_put_varint(uint8_t *, uint32_t) noexcept
    int64_t kp_varint_size(uint32_t) noexcept
    kp_ptr kp_varint(kp_reader *, kp_ptr, kp_ptr, uint32_t *, const char *) noexcept
    kp_ptr kp_bool(kp_reader *, kp_ptr, uint8_t *, const char *) noexcept
    int64_t kp_count(kp_reader *, kp_ptr *, kp_ptr, bint, int64_t, int64_t, const char *, const char *) noexcept
    bint kp_is_ascii(kp_ptr, int64_t) noexcept
    kp_ptr kp_bad_utf8(kp_ptr, int64_t) noexcept
    int64_t kp_replace_utf8(uint8_t *, kp_ptr, int64_t) noexcept
    kp_ptr kp_string(kp_reader *, kp_ptr, kp_ptr, bint, bint, int64_t *, const char *) noexcept
    kp_ptr kp_tag(kp_reader *, kp_ptr, uint32_t *, uint32_t *, kp_ptr *) noexcept
    kp_ptr kp_tags(kp_reader *, kp_ptr, kp_ptr, kp_ptr *, kp_ptr *) noexcept
    kp_ptr kp_own_varint(kp_ptr, uint32_t *) noexcept
    int64_t kp_own_tags_size(kp_ptr, int64_t, uint32_t *, int32_t *) noexcept
    uint8_t *kp_put_own_tags(uint8_t *, kp_ptr, int64_t) noexcept


cdef extern from "_cython/rows.h" nogil:
    int KP_LISTS, KP_ROW_WITHOUT_IDS
    ctypedef struct kp_row:
        int32_t partition, controller_epoch, leader, leader_epoch, partition_epoch
        uint8_t is_new
        int8_t recovery
        kp_ptr name
        int64_t name_length
        kp_ptr *ids
        int64_t *n
        kp_ptr tags, tags_end
    ctypedef struct kp_topic_head:
        kp_ptr name, id
        int64_t name_length, rows
    ctypedef struct kp_state:
        const int32_t *head
        int32_t partition_epoch
        uint8_t is_new
        int8_t recovery
        int32_t *n
        const int32_t **ids
    ctypedef struct kp_stop:
        int32_t partition, leader_epoch
        uint8_t flag
        kp_ptr tags, tags_end
    ctypedef struct kp_error:
        int32_t partition
        int16_t error_code
        kp_ptr name, tags, tags_end
        int64_t name_length
    bint kp_flexible(bint, int) noexcept
    bint kp_grouped(bint, int) noexcept
    bint kp_with_id(bint, int) noexcept
    int kp_umr_form(int) noexcept
    int kp_lisr_form(int) noexcept
    kp_ptr kp_read_umr_row(kp_reader *, kp_ptr, int, kp_row *) noexcept
    kp_ptr kp_read_lisr_row(kp_reader *, kp_ptr, int, kp_row *) noexcept
    void kp_row_ids(int32_t *, const kp_row *, kp_ptr) noexcept
    kp_ptr kp_topic_of(kp_reader *, kp_ptr, bint, int, kp_topic_head *) noexcept
    uint8_t *kp_put_row(uint8_t *, const kp_state *, int, int) noexcept
    int64_t kp_row_size(const int32_t *, int, int) noexcept
    uint8_t *kp_put_count(uint8_t *, int64_t, bint) noexcept
    kp_ptr kp_read_stop(kp_reader *, kp_ptr, kp_ptr, kp_stop *) noexcept
    kp_ptr kp_read_stop_topic(kp_reader *, kp_ptr, kp_ptr, int, kp_topic_head *) noexcept
    const char *kp_stops_field(int) noexcept
    kp_ptr kp_read_error(kp_reader *, kp_ptr, kp_ptr, bint, bint, kp_error *) noexcept


cdef extern from "_cython/plain.h" nogil:
    kp_ptr kp_plain_brokers(kp_ptr, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_plain_leaders(kp_ptr, kp_ptr, int64_t, bint) noexcept


cdef extern from "_cython/columns_write.h" nogil:
    enum:
        KP_ERRORS, KP_LISR, KP_SR, KP_UMR
        KP_FRAME, KP_TOPIC, KP_PARTITION, KP_CONTROLLER_EPOCH, KP_LEADER, KP_LEADER_EPOCH, KP_PARTITION_EPOCH
        KP_FINE, KP_NO_COLUMN, KP_BAD_TYPE, KP_UNFIT, KP_NULL_ROW, KP_BAD_OFFSETS, KP_BAD_CODE, KP_LONG_NAME
        KP_RECOVERING, KP_MANY, KP_FLAGS_DIFFER, KP_OUT_OF_MEMORY
        KP_TOPIC_ID, KP_FLAG, KP_RECOVERY, KP_ERROR, KP_LIST
    ctypedef struct kp_batch:
        int layout
        int lists
        int64_t rows, capacity
        int32_t **ints
        uint8_t *flag
        int8_t *recovery
        int32_t **offsets
        int32_t **ids
        int64_t *used
        int64_t *ids_capacity
        int64_t topics, collisions
    ctypedef struct kp_mark:
        int64_t rows
        int64_t *used
    ctypedef struct kp_field:
        const char *name
        const char *format
        int column
    struct ArrowSchema:
        void (*release)(ArrowSchema *) noexcept
    struct ArrowArray:
        void (*release)(ArrowArray *) noexcept
    struct ArrowArrayStream:
        void (*release)(ArrowArrayStream *) noexcept
    ctypedef struct kp_problem:
        int trouble
        const char *column
        const char *expected
        const char *format
        int64_t row
        int64_t value
    uint64_t *kp_hash_key
    int kp_copy_arrow(kp_batch *, const ArrowSchema *, const ArrowArray *, kp_problem *) noexcept
    kp_batch *kp_batch_new(int) noexcept
    void kp_batch_drop(kp_batch *) noexcept
    int kp_resize_rows(kp_batch *, int64_t) noexcept
    int kp_reserve_rows(kp_reader *, kp_batch *, kp_ptr, int64_t) noexcept
    int64_t kp_topic(kp_reader *, kp_batch *, kp_ptr, int64_t, kp_ptr, int64_t) noexcept
    int kp_seal(kp_batch *) noexcept
    void kp_mark_set(kp_batch *, kp_mark *) noexcept
    void kp_mark_back(kp_batch *, kp_mark *) noexcept
    enum: KP_FEW_REPLICAS
    int64_t kp_topics_in(const kp_batch *, int64_t) noexcept
    int64_t kp_common_replicas(const kp_batch *, const kp_mark *, int32_t *) noexcept
    const kp_field *kp_fields(int) noexcept
    int64_t kp_field_count(int) noexcept
    int kp_schema_of(int, ArrowSchema *) noexcept
    int kp_array_of(kp_batch *, ArrowArray *) noexcept
    int kp_stream_of(kp_batch *, ArrowArrayStream *) noexcept
    int64_t kp_states_size(const kp_batch *, bint, int, int64_t *, kp_problem *) noexcept
    int64_t kp_stops_size(const kp_batch *, int, bint, int64_t *, kp_problem *) noexcept
    uint8_t *kp_put_umr_states(uint8_t *, const kp_batch *, int) noexcept
    uint8_t *kp_put_lisr_states(uint8_t *, const kp_batch *, int) noexcept
    uint8_t *kp_put_stops(uint8_t *, const kp_batch *, int) noexcept


cdef extern from "_cython/columns_read.h" nogil:
    int64_t kp_umr_count(kp_reader *, kp_ptr *, int) noexcept
    int64_t kp_lisr_count(kp_reader *, kp_ptr *, int) noexcept
    int64_t kp_sr_count(kp_reader *, kp_ptr *, int) noexcept
    kp_ptr kp_umr_states(kp_reader *, kp_batch *, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_lisr_states(kp_reader *, kp_batch *, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_sr_states(kp_reader *, kp_batch *, kp_ptr, int64_t, int, uint8_t) noexcept
    kp_ptr kp_check_umr_states(kp_reader *, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_check_lisr_states(kp_reader *, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_check_sr_states(kp_reader *, kp_ptr, int64_t, int) noexcept
    kp_ptr kp_errors(kp_reader *, kp_batch *, kp_ptr, bint, bint) noexcept


cdef class Struct:
    pass


cdef class Tagged(Struct):
    cdef bytes tags


cdef class Message(Tagged):
    cdef public int version


cdef class Unread:
    cdef bytes holder
    cdef kp_ptr at
    cdef kp_ptr end
    cdef int64_t count
    cdef int version
    cdef bint plain


cdef class ControlRequest(Message):
    cdef public int32_t controller_id, controller_epoch
    cdef public int64_t broker_epoch
    cdef public bint is_kraft_controller
    cdef list ungrouped_, topic_states_, live_  # live brokers or leaders, behind the partitions
    cdef Unread states, unread_live


cdef class TopicState(Tagged):
    cdef public str topic_name
    cdef list partition_states_
    cdef uint8_t id[16]


cdef class PartitionError(Tagged):
    cdef public str topic_name
    cdef public int32_t partition_index
    cdef public int16_t error_code


cdef class Block:
    cdef int32_t *data
    cdef Block parent
    cdef str topic_name
    cdef bytes tags
    cdef bint read_only  # its rows are those of a message's flat ``partition_states``


# ---- LeaderAndIsr ----------------------------------------------------------------------------------------------------

cdef class LeaderAndIsrPartitionState(Struct):
    # The first four in this order: they are written together.
    cdef public int32_t partition_index, controller_epoch, leader, leader_epoch, partition_epoch
    cdef public bint is_new
    cdef public int8_t leader_recovery_state
    cdef int32_t n[4]
    cdef int32_t *ids
    cdef Block owner


cdef class LeaderAndIsrTopicState(TopicState):
    pass


cdef class LeaderAndIsrLiveLeader(Tagged):
    cdef public int32_t broker_id, port
    cdef public str host_name


cdef class LeaderAndIsrRequest(ControlRequest):
    cdef public int8_t type


cdef class LeaderAndIsrPartitionError(PartitionError):
    pass


cdef class LeaderAndIsrTopicError(Tagged):
    cdef list partition_errors_
    cdef uint8_t id[16]


cdef class LeaderAndIsrResponse(Message):
    cdef public int16_t error_code
    cdef list partition_errors_, topics_


# ---- StopReplica -----------------------------------------------------------------------------------------------------

cdef class StopReplicaPartitionV0(Tagged):
    cdef public str topic_name
    cdef public int32_t partition_index


cdef class StopReplicaTopicV1(Tagged):
    cdef public str name
    cdef int32_t n[1]
    cdef int32_t *ids
    cdef Block owner


cdef class StopReplicaPartitionState(Tagged):
    cdef public int32_t partition_index, leader_epoch
    cdef public bint delete_partition


cdef class StopReplicaTopicState(Tagged):
    cdef public str topic_name
    cdef list partition_states_


cdef class StopReplicaRequest(ControlRequest):
    cdef public bint delete_partitions
    cdef list topics_


cdef class StopReplicaPartitionError(PartitionError):
    pass


cdef class StopReplicaResponse(Message):
    cdef public int16_t error_code
    cdef list partition_errors_


# ---- UpdateMetadata --------------------------------------------------------------------------------------------------

cdef class UpdateMetadataPartitionState(Struct):
    # The first four in this order: they are written together.
    cdef public int32_t partition_index, controller_epoch, leader, leader_epoch, zk_version
    cdef int32_t n[3]
    cdef int32_t *ids
    cdef Block owner


cdef class UpdateMetadataTopicState(TopicState):
    pass


cdef class UpdateMetadataEndpoint(Tagged):
    cdef public int32_t port
    cdef public int16_t security_protocol
    cdef public str host, listener


cdef class UpdateMetadataBroker(Tagged):
    cdef public int32_t id, v0_port
    cdef public str v0_host, rack
    cdef list endpoints_


cdef class UpdateMetadataRequest(ControlRequest):
    cdef public int8_t type


cdef class UpdateMetadataResponse(Message):
    cdef public int16_t error_code


# ---- headers ---------------------------------------------------------------------------------------------------------

cdef class RequestHeader(Tagged):
    cdef public int16_t request_api_key, request_api_version
    cdef public int32_t correlation_id
    cdef public str client_id


cdef class ResponseHeader(Tagged):
    cdef public int32_t correlation_id
