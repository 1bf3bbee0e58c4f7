"""LeaderAndIsr in Kafka's JSON form, both ways."""


cdef list lisr_rows_to_json(list rows, int version):
    cdef LeaderAndIsrPartitionState v
    cdef dict j
    cdef int32_t *ids
    cdef list out = []
    for v in rows:
        if version < 6 and v.leader_recovery_state:
            lacking(version, "leader_recovery_state")
        ids = v.ids
        j = {"topicName": row_topic(v.owner)} if version <= 1 else {}
        j["partitionIndex"] = v.partition_index
        j["controllerEpoch"] = v.controller_epoch
        j["leader"] = v.leader
        j["leaderEpoch"] = v.leader_epoch
        j["isr"] = ids_list(ids, v.n[0])
        j["partitionEpoch"] = v.partition_epoch
        j["replicas"] = ids_list(ids + v.n[0], v.n[1])
        if version >= 3:
            j["addingReplicas"] = ids_list(ids + v.n[0] + v.n[1], v.n[2])
            j["removingReplicas"] = ids_list(ids + v.n[0] + v.n[1] + v.n[2], v.n[3])
        if version >= 1:
            j["isNew"] = v.is_new
        if version >= 6:
            j["leaderRecoveryState"] = v.leader_recovery_state
        out.append(j)
    return out


cdef dict lisr_to_json(LeaderAndIsrRequest m, int version):
    cdef LeaderAndIsrTopicState topic
    cdef LeaderAndIsrLiveLeader leader
    cdef dict j = head_to_json(m, 4, version)
    if version >= 5:
        j["type"] = m.type
    if version >= 2:
        topics = []
        for topic in m.topic_states:
            entry = {"topicName": not_null(topic.topic_name, "topic_name")}
            if version >= 5:
                entry["topicId"] = uuid_to_json(topic.topic_id)
            entry["partitionStates"] = lisr_rows_to_json(topic.partition_states, version)
            topics.append(entry)
        j["topicStates"] = topics
    else:
        j["ungroupedPartitionStates"] = lisr_rows_to_json(m.ungrouped_partition_states, version)
    leaders = []
    for leader in m.live_leaders:
        leaders.append({"brokerId": leader.broker_id, "hostName": not_null(leader.host_name, "host_name"),
                        "port": leader.port})
    j["liveLeaders"] = leaders
    return j


cdef object lisr_row_from_json(object j, int version):
    return LeaderAndIsrPartitionState(
        topic_name=json_text(j, "topicName") if version <= 1 else "",
        partition_index=json_int32(j, "partitionIndex"),
        controller_epoch=json_int32(j, "controllerEpoch"),
        leader=json_int32(j, "leader"),
        leader_epoch=json_int32(j, "leaderEpoch"),
        isr=json_ids(j, "isr"),
        partition_epoch=json_int32(j, "partitionEpoch"),
        replicas=json_ids(j, "replicas"),
        adding_replicas=json_ids(j, "addingReplicas") if version >= 3 else (),
        removing_replicas=json_ids(j, "removingReplicas") if version >= 3 else (),
        is_new=json_bool(j, "isNew") if version >= 1 else False,
        leader_recovery_state=json_int8(j, "leaderRecoveryState") if version >= 6 else 0,
    )


cdef object lisr_topic_from_json(object j, int version):
    return LeaderAndIsrTopicState(
        topic_name=json_text(j, "topicName"),
        topic_id=json_uuid(j, "topicId") if version >= 5 else ZERO_UUID,
        partition_states=json_each(j, "partitionStates", lisr_row_from_json, version),
    )


cdef object lisr_leader_from_json(object j, int version):
    return LeaderAndIsrLiveLeader(
        broker_id=json_int32(j, "brokerId"), host_name=json_text(j, "hostName"), port=json_int32(j, "port")
    )


cdef object lisr_from_json(object j, int version):
    return LeaderAndIsrRequest(
        controller_id=json_int32(j, "controllerId"),
        is_kraft_controller=json_bool(j, "isKRaftController") if version >= 7 else False,
        controller_epoch=json_int32(j, "controllerEpoch"),
        broker_epoch=json_int64(j, "brokerEpoch") if version >= 2 else -1,
        type=json_int8(j, "type") if version >= 5 else 0,
        ungrouped_partition_states=(
            json_each(j, "ungroupedPartitionStates", lisr_row_from_json, version) if version <= 1 else ()
        ),
        topic_states=json_each(j, "topicStates", lisr_topic_from_json, version) if version >= 2 else (),
        live_leaders=json_each(j, "liveLeaders", lisr_leader_from_json, version),
        version=version,
    )


cdef dict lisr_error_to_json(LeaderAndIsrPartitionError e, int version):
    cdef dict j = {"topicName": not_null(e.topic_name, "topic_name")} if version <= 4 else {}
    j["partitionIndex"] = e.partition_index
    j["errorCode"] = e.error_code
    return j


cdef dict lisr_response_to_json(LeaderAndIsrResponse m, int version):
    lisr_check_response(m, version)
    if version < 5:
        return {"errorCode": m.error_code,
                "partitionErrors": [lisr_error_to_json(e, version) for e in m.partition_errors]}
    return {"errorCode": m.error_code, "topics": [
        {"topicId": uuid_to_json(topic.topic_id),
         "partitionErrors": [lisr_error_to_json(e, version) for e in topic.partition_errors]}
        for topic in m.topics
    ]}


cdef object lisr_error_from_json(object j, int version):
    return LeaderAndIsrPartitionError(
        topic_name=json_text(j, "topicName") if version <= 4 else "",
        partition_index=json_int32(j, "partitionIndex"),
        error_code=json_int16(j, "errorCode"),
    )


cdef object lisr_topic_error_from_json(object j, int version):
    return LeaderAndIsrTopicError(
        topic_id=json_uuid(j, "topicId"),
        partition_errors=json_each(j, "partitionErrors", lisr_error_from_json, version),
    )


cdef object lisr_response_from_json(object j, int version):
    return LeaderAndIsrResponse(
        error_code=json_int16(j, "errorCode"),
        partition_errors=json_each(j, "partitionErrors", lisr_error_from_json, version) if version <= 4 else (),
        topics=json_each(j, "topics", lisr_topic_error_from_json, version) if version >= 5 else (),
        version=version,
    )
