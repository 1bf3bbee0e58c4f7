"""The partitions of an UpdateMetadata: however they were added, the last entry of each is sent, topic by topic."""

from hypothesis import given
from hypothesis import strategies as st

from channel.send.messages import MetadataColumns
from channel.types import LeaderAndIsr, LeaderIsrAndControllerEpoch
from kproto.api import ApiKey
from kproto.codec import decode_request
from kproto.messages import UpdateMetadataRequest

PARTITIONS = st.integers(0, 5)
ADDED = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.lists(PARTITIONS, min_size=1, max_size=4),
        st.booleans(),
        st.sampled_from([(), (2,)]),
    ),
    max_size=8,
)


@given(ADDED)
def test_the_last_entry_of_each_partition_is_sent(added: list[tuple[str, list[int], bool, tuple[int, ...]]]) -> None:
    columns = MetadataColumns()
    expected: dict[str, dict[int, tuple[int, list[int]]]] = {}
    epoch = 0
    for topic, partitions, at_once, offline in added:
        states = []
        for partition in partitions:
            epoch += 1
            states.append(LeaderIsrAndControllerEpoch(LeaderAndIsr(1, (1, 2), epoch, 0), 1))
            expected.setdefault(topic, {})[partition] = epoch, [] if at_once else list(offline)
        if at_once:
            columns.add_all(topic, partitions, states, [(1, 2)] * len(partitions))
        else:
            for partition, state in zip(partitions, states, strict=True):
                columns.add(topic, partition, state, (1, 2), offline)
    body = b"".join(columns.encode(UpdateMetadataRequest(controller_id=1), 8, {}))
    message = decode_request(ApiKey.UPDATE_METADATA, 8, body)
    sent = {
        topic.topic_name: {
            row.partition_index: (row.leader_epoch, list(row.offline_replicas)) for row in topic.partition_states
        }
        for topic in message.topic_states
    }
    assert sent == expected
    assert [len(topic.partition_states) for topic in message.topic_states] == [len(expected[t]) for t in sent]
