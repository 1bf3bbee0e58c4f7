"""UpdateMetadata in Kafka's JSON form, both ways."""


cdef list umr_rows_to_json(list rows, int version):
    cdef UpdateMetadataPartitionState v
    cdef dict j
    cdef list out = []
    for v in rows:
        j = {"topicName": row_topic(v.owner)} if version <= 4 else {}
        j["partitionIndex"] = v.partition_index
        j["controllerEpoch"] = v.controller_epoch
        j["leader"] = v.leader
        j["leaderEpoch"] = v.leader_epoch
        j["isr"] = ids_list(v.ids, v.n[0])
        j["zkVersion"] = v.zk_version
        j["replicas"] = ids_list(v.ids + v.n[0], v.n[1])
        if version >= 4:
            j["offlineReplicas"] = ids_list(v.ids + v.n[0] + v.n[1], v.n[2])
        out.append(j)
    return out


cdef dict umr_broker_to_json(UpdateMetadataBroker b, int version):
    cdef UpdateMetadataEndpoint e
    cdef dict j = {"id": b.id}
    cdef list endpoints = []
    if version == 0:
        j["v0Host"] = not_null(b.v0_host, "v0_host")
        j["v0Port"] = b.v0_port
        return j
    for e in b.endpoints:
        entry = {"port": e.port, "host": not_null(e.host, "host")}
        if version >= 3:
            entry["listener"] = not_null(e.listener, "listener")
        entry["securityProtocol"] = e.security_protocol
        endpoints.append(entry)
    j["endpoints"] = endpoints
    if version >= 2:
        j["rack"] = b.rack
    return j


cdef dict umr_to_json(UpdateMetadataRequest m, int version):
    cdef UpdateMetadataTopicState topic
    cdef dict j = head_to_json(m, 6, version)
    if version >= 5:
        topics = []
        for topic in m.topic_states:
            entry = {"topicName": not_null(topic.topic_name, "topic_name")}
            if version >= 7:
                entry["topicId"] = uuid_to_json(topic.topic_id)
            entry["partitionStates"] = umr_rows_to_json(topic.partition_states, version)
            topics.append(entry)
        j["topicStates"] = topics
    else:
        j["ungroupedPartitionStates"] = umr_rows_to_json(m.ungrouped_partition_states, version)
    j["liveBrokers"] = [umr_broker_to_json(b, version) for b in m.live_brokers]
    return j


cdef object umr_row_from_json(object j, int version):
    return UpdateMetadataPartitionState(
        topic_name=json_text(j, "topicName") if version <= 4 else "",
        partition_index=json_int32(j, "partitionIndex"),
        controller_epoch=json_int32(j, "controllerEpoch"),
        leader=json_int32(j, "leader"),
        leader_epoch=json_int32(j, "leaderEpoch"),
        isr=json_ids(j, "isr"),
        zk_version=json_int32(j, "zkVersion"),
        replicas=json_ids(j, "replicas"),
        offline_replicas=json_ids(j, "offlineReplicas") if version >= 4 else (),
    )


cdef object umr_topic_from_json(object j, int version):
    return UpdateMetadataTopicState(
        topic_name=json_text(j, "topicName"),
        topic_id=json_uuid(j, "topicId") if version >= 7 else ZERO_UUID,
        partition_states=json_each(j, "partitionStates", umr_row_from_json, version),
    )


cdef object umr_endpoint_from_json(object j, int version):
    return UpdateMetadataEndpoint(
        port=json_int32(j, "port"),
        host=json_text(j, "host"),
        listener=json_text(j, "listener") if version >= 3 else "",
        security_protocol=json_int16(j, "securityProtocol"),
    )


cdef object umr_broker_from_json(object j, int version):
    return UpdateMetadataBroker(
        id=json_int32(j, "id"),
        v0_host=json_text(j, "v0Host") if version == 0 else "",
        v0_port=json_int32(j, "v0Port") if version == 0 else 0,
        endpoints=json_each(j, "endpoints", umr_endpoint_from_json, version) if version >= 1 else (),
        rack=json_text(j, "rack", True) if version >= 2 else "",
    )


cdef object umr_from_json(object j, int version):
    return UpdateMetadataRequest(
        controller_id=json_int32(j, "controllerId"),
        is_kraft_controller=json_bool(j, "isKRaftController") if version >= 8 else False,
        type=json_int8(j, "type") if version >= 8 and "type" in json_object(j) else 0,
        controller_epoch=json_int32(j, "controllerEpoch"),
        broker_epoch=json_int64(j, "brokerEpoch") if version >= 5 else -1,
        ungrouped_partition_states=(
            json_each(j, "ungroupedPartitionStates", umr_row_from_json, version) if version <= 4 else ()
        ),
        topic_states=json_each(j, "topicStates", umr_topic_from_json, version) if version >= 5 else (),
        live_brokers=json_each(j, "liveBrokers", umr_broker_from_json, version),
        version=version,
    )
