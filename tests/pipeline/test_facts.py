"""What a cluster's recordings tell of its brokers, kept beside the tables for the next run."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kproto.pipeline.facts import BrokersOfCluster
from kproto.tables.brokers import BrokerFacts

_ADDRESS = st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.integers(1, 3))
_CAPTURE = st.sampled_from("ab")
_REPLICAS = st.lists(st.tuples(_CAPTURE, _ADDRESS, st.frozensets(st.integers(0, 4))), max_size=6)
_LISTED = st.lists(st.tuples(st.integers(0, 9), _CAPTURE, st.lists(st.just((1, "host", 9092)), max_size=2)), max_size=6)


def learned(*parts: tuple[list, list]) -> BrokerFacts:
    facts = BrokerFacts()
    for listed, replicas in parts:
        for each in listed:
            facts.learn_listeners(*each)
        for each in replicas:
            facts.learn_replicas(*each)
    return facts


@given(parts=st.lists(st.tuples(_LISTED, _REPLICAS), min_size=1, max_size=4))
def test_facts_of_recordings_are_those_of_all_together_and_are_stored_whole(parts, tmp_path_factory) -> None:
    together = BrokersOfCluster(learned(parts[0]), {("a", "10.0.0.1", 1)})
    together = together.with_all([learned(part) for part in parts[1:]], [("b", "10.0.0.2", 2)])
    assert together.facts.replicas == learned(*parts).replicas
    assert {*together.facts.listeners} == {fact for part in parts for fact in learned(part).listeners}
    assert together.addresses == {("a", "10.0.0.1", 1), ("b", "10.0.0.2", 2)}
    folder: Path = tmp_path_factory.mktemp("facts")
    (folder / "facts.json").write_bytes(together.to_bytes())
    stored = BrokersOfCluster.stored(folder, "facts.json")
    assert (stored.facts.replicas, stored.addresses) == (together.facts.replicas, together.addresses)
    assert {fact[1:] for fact in stored.facts.listeners} == {fact[1:] for fact in together.facts.listeners}
