"""What a cluster's recordings tell of its brokers, kept beside the tables for the next run."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kproto.pipeline.facts import facts_as_bytes, stored_facts
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
    found = [learned(part) for part in parts]
    found[0].addresses.add(("a", "10.0.0.1", 1))
    found[-1].addresses.add(("b", "10.0.0.2", 2))
    together = BrokerFacts.joined(found)
    assert together.replicas == learned(*parts).replicas
    assert {*together.listeners} == {fact for part in found for fact in part.listeners}
    assert together.addresses == {("a", "10.0.0.1", 1), ("b", "10.0.0.2", 2)}
    folder: Path = tmp_path_factory.mktemp("facts")
    (folder / "facts.json").write_bytes(facts_as_bytes(together))
    stored = stored_facts(folder, "facts.json")
    assert (stored.replicas, stored.addresses) == (together.replicas, together.addresses)
    assert {fact[1:] for fact in stored.listeners} == {fact[1:] for fact in together.listeners}
