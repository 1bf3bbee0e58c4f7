"""Whose address is that? What control requests tell of brokers' ids, and what stays unknown rather than guessed."""

import pickle
from typing import Any

import pytest
from control_messages import broker, leader_and_isr, leader_state, update_metadata

from kproto.capture import Endpoint
from kproto.errors import ConfigurationError
from kproto.tables import BrokerDirectory
from kproto.tables.bodies import ControlBody
from kproto.tables.brokers import BrokerFacts

ONE, TWO, THREE = (Endpoint(f"10.0.0.{n}", 9092) for n in (1, 2, 3))


def told_of(*brokers: Any) -> Any:
    """A request in which the controller names the live brokers."""
    return ONE, update_metadata({}, list(brokers))


def led(server: Endpoint, *replicas: list[int]) -> Any:
    """A request in which that server is told of partitions with these replicas."""
    states = [leader_state(n, ids[0], replicas=ids, isr=ids) for n, ids in enumerate(replicas)]
    return server, leader_and_isr({"t": states})


def learn(directory: BrokerDirectory, request: tuple[Endpoint, Any]) -> None:
    server, message = request
    directory.learn(0, "a.pcap", server, ControlBody(b"", message.api_key, message))


def test_nothing_is_known_of_an_address_that_nobody_named() -> None:
    assert BrokerDirectory().id_of(ONE) is None


def test_live_brokers_are_known_by_address() -> None:
    directory = BrokerDirectory()
    learn(directory, told_of(broker(1, host="10.0.0.1"), broker(2, host="10.0.0.2"), broker(6, host="0:0:0:0:0:0:0:1")))
    assert [directory.id_of(e) for e in (ONE, TWO, THREE)] == [1, 2, None]
    assert directory.id_of(Endpoint("::1", 9092)) == 6


def test_an_address_follows_the_broker_that_moved_to_it() -> None:
    directory = BrokerDirectory()
    learn(directory, told_of(broker(1, host="10.0.0.1")))
    learn(directory, told_of(broker(9, host="10.0.0.1")))
    assert directory.id_of(ONE) == 9


def test_a_port_that_one_broker_alone_has_tells_it_though_hosts_are_names() -> None:
    directory = BrokerDirectory()
    learn(
        directory,
        told_of(
            broker(1, host="kafka", port=9091), broker(2, host="kafka", port=9092), broker(3, host="kafka", port=9093)
        ),
    )
    assert directory.id_of(TWO) == 2
    assert directory.id_of(Endpoint("10.0.0.9", 9093)) == 3


def test_a_port_that_several_brokers_have_tells_nobody() -> None:
    directory = BrokerDirectory()
    learn(directory, told_of(broker(1, host="kafka-1"), broker(2, host="kafka-2"), broker(3, host="kafka-3")))
    assert directory.id_of(ONE) is None


def test_the_replica_that_all_partitions_sent_to_an_address_share_is_its_broker() -> None:
    directory = BrokerDirectory()
    learn(directory, told_of(broker(1, host="kafka-1"), broker(2, host="kafka-2"), broker(3, host="kafka-3")))
    learn(directory, led(TWO, [1, 2]))
    assert directory.id_of(TWO) is None
    learn(directory, led(TWO, [2, 3], [3, 2]))
    assert directory.id_of(TWO) == 2
    assert directory.id_of(ONE) is None


def test_partitions_that_share_no_replica_tell_nobody() -> None:
    directory = BrokerDirectory()
    learn(directory, led(TWO, [1, 2], [3, 4]))
    assert directory.id_of(TWO) is None


def test_what_the_user_told_goes_first() -> None:
    directory = BrokerDirectory({("10.0.0.1", 9092): 77})
    learn(directory, told_of(broker(1, host="10.0.0.1")))
    learn(directory, led(ONE, [1]))
    assert directory.id_of(ONE) == 77


def test_an_id_holds_from_when_it_was_listed_and_the_first_one_before() -> None:
    directory = BrokerDirectory()
    for time_ns, broker_id in (10, 1), (20, 9), (30, 1):
        directory.learn_listeners(time_ns, "a.pcap", [(broker_id, "10.0.0.1", 9092)])
    assert [directory.id_of(ONE, t) for t in (0, 10, 19, 20, 29, 30, 99, None)] == [1, 1, 1, 9, 9, 1, 1, 1]


def test_a_capture_of_its_own_goes_before_the_others() -> None:
    """Captures of one cluster help each other; those of different clusters use the same addresses."""
    directory = BrokerDirectory()
    directory.learn_listeners(10, "a.pcap", [(1, "10.0.0.1", 9092)])
    directory.learn_listeners(20, "b.pcap", [(5, "10.0.0.1", 9092), (6, "10.0.0.2", 9092)])
    assert directory.id_of(ONE, 30, "a.pcap") == 1
    assert directory.id_of(ONE, 30, "b.pcap") == 5
    assert directory.id_of(TWO, 30, "a.pcap") == 6


def test_captures_with_the_same_brokers_hold_their_lists_once() -> None:
    """Each of many hosts' captures lists all brokers: what is kept grows with the captures, not with both."""
    before = [(n, f"10.0.{n // 250}.{n % 250}", 9092) for n in range(500)]
    after = [(n + 1000, host, port) for n, host, port in before]
    sizes = []
    for hosts in (10, 100):
        facts = BrokerFacts()
        for n in range(hosts):
            facts.learn_listeners(10 + n, f"{n}.pcap", list(before))
            facts.learn_listeners(5000 + n, f"{n}.pcap", list(after))
        directory = BrokerDirectory()
        pickle.loads(pickle.dumps(facts)).teach(directory)
        assert directory.history_of(("10.0.1.7", 9092), "3.pcap") == [(13, 257), (5003, 1257)]
        assert directory.history_of(("10.0.1.7", 9092), "another.pcap") == [(10, 257), (5000, 1257)]
        sizes.append(len(pickle.dumps((facts, directory))))
    assert sizes[1] < 1.5 * sizes[0]


def test_an_id_that_the_traffic_shows_to_be_two_brokers_is_refused() -> None:
    directory = BrokerDirectory({("10.0.0.1", 9092): 7, ("10.0.0.2", 9092): 7})
    with pytest.raises(ConfigurationError, match="id 7 to two brokers, 1 and 2"):
        directory.learn_listeners(0, "a.pcap", [(1, "10.0.0.1", 9092), (2, "10.0.0.2", 9092)])


def test_two_listeners_of_a_broker_may_have_its_id() -> None:
    directory = BrokerDirectory({("10.0.0.1", 9092): 7, ("10.0.0.1", 9093): 7})
    directory.learn_listeners(0, "a.pcap", [(1, "10.0.0.1", 9092), (1, "10.0.0.1", 9093)])
    assert directory.id_of(ONE) == 7
