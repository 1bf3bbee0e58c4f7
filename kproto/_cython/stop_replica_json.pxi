"""StopReplica in Kafka's JSON form, both ways."""


cdef dict sr_to_json(StopReplicaRequest m, int version):
    cdef StopReplicaTopicState topic
    cdef StopReplicaPartitionState row
    cdef dict j = head_to_json(m, 5, version)
    if version <= 2:
        j["deletePartitions"] = m.delete_partitions
    if version == 0:
        j["ungroupedPartitions"] = [
            {"topicName": not_null(p.topic_name, "topic_name"), "partitionIndex": p.partition_index}
            for p in m.ungrouped_partitions
        ]
    elif version <= 2:
        j["topics"] = [{"name": not_null(t.name, "name"), "partitionIndexes": list(t.partition_indexes)}
                       for t in m.topics]
    else:
        topics = []
        for topic in m.topic_states:
            rows = []
            for row in topic.partition_states:
                rows.append({"partitionIndex": row.partition_index, "leaderEpoch": row.leader_epoch,
                             "deletePartition": row.delete_partition})
            topics.append({"topicName": not_null(topic.topic_name, "topic_name"), "partitionStates": rows})
        j["topicStates"] = topics
    return j


cdef object sr_single_from_json(object j, int version):
    return StopReplicaPartitionV0(topic_name=json_text(j, "topicName"), partition_index=json_int32(j, "partitionIndex"))


cdef object sr_topic_from_json(object j, int version):
    return StopReplicaTopicV1(name=json_text(j, "name"), partition_indexes=json_ids(j, "partitionIndexes"))


cdef object sr_row_from_json(object j, int version):
    return StopReplicaPartitionState(
        partition_index=json_int32(j, "partitionIndex"),
        leader_epoch=json_int32(j, "leaderEpoch"),
        delete_partition=json_bool(j, "deletePartition"),
    )


cdef object sr_topic_state_from_json(object j, int version):
    return StopReplicaTopicState(
        topic_name=json_text(j, "topicName"),
        partition_states=json_each(j, "partitionStates", sr_row_from_json, version),
    )


cdef object sr_from_json(object j, int version):
    return StopReplicaRequest(
        controller_id=json_int32(j, "controllerId"),
        is_kraft_controller=json_bool(j, "isKRaftController") if version >= 4 else False,
        controller_epoch=json_int32(j, "controllerEpoch"),
        broker_epoch=json_int64(j, "brokerEpoch") if version >= 1 else -1,
        delete_partitions=json_bool(j, "deletePartitions") if version <= 2 else False,
        ungrouped_partitions=(
            json_each(j, "ungroupedPartitions", sr_single_from_json, version) if version == 0 else ()
        ),
        topics=json_each(j, "topics", sr_topic_from_json, version) if 1 <= version <= 2 else (),
        topic_states=json_each(j, "topicStates", sr_topic_state_from_json, version) if version >= 3 else (),
        version=version,
    )


cdef dict sr_response_to_json(StopReplicaResponse m, int version):
    return {"errorCode": m.error_code, "partitionErrors": [
        {"topicName": not_null(e.topic_name, "topic_name"), "partitionIndex": e.partition_index,
         "errorCode": e.error_code}
        for e in m.partition_errors
    ]}


cdef object sr_error_from_json(object j, int version):
    return StopReplicaPartitionError(
        topic_name=json_text(j, "topicName"),
        partition_index=json_int32(j, "partitionIndex"),
        error_code=json_int16(j, "errorCode"),
    )


cdef object sr_response_from_json(object j, int version):
    return StopReplicaResponse(
        error_code=json_int16(j, "errorCode"),
        partition_errors=json_each(j, "partitionErrors", sr_error_from_json, version),
        version=version,
    )
