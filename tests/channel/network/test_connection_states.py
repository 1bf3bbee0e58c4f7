"""What a client knows of each node: state, backoff, setup timeout, addresses."""

import pytest

from channel.clock import FOREVER
from channel.errors import AuthenticationFailed, IllegalState
from channel.network.client import ClusterConnectionStates, ConnectionState

NODE = "1001"
HOST = "localhost"
BACKOFF, BACKOFF_MAX, SETUP, SETUP_MAX = 10_000, 60_000, 10_000, 127_000

HOSTS = {
    HOST: ["127.0.0.1"],
    "three": ["10.200.20.100", "10.200.20.101", "10.200.20.102"],
    "moved": ["10.200.30.100", "10.200.30.101"],
}


@pytest.fixture
def resolved():
    return []


@pytest.fixture
def states():
    return ClusterConnectionStates(BACKOFF, BACKOFF_MAX, SETUP, SETUP_MAX)


@pytest.fixture
def address(states, resolved):
    """The address to try now; the host is resolved if the states have none left."""

    def find(host):
        if states.current_address(NODE) is None:
            resolved.append(host)
            states.resolved(NODE, HOSTS[host])
        return states.current_address(NODE)

    return find


def about(value):
    return pytest.approx(value, rel=0.2)


@pytest.mark.conformance("CCS-01")
def test_a_connection_goes_from_unknown_to_ready_to_disconnected_and_may_be_tried_again(states, clock):
    now = clock.milliseconds
    assert states.can_connect(NODE, now())
    assert states.connection_delay(NODE, now()) == 0

    states.connecting(NODE, now(), HOST)
    assert states.state(NODE) is ConnectionState.CONNECTING
    assert not states.can_connect(NODE, now())
    assert states.connection_delay(NODE, now()) == about(SETUP)

    clock.sleep(100)
    states.ready(NODE)
    assert states.state(NODE) is ConnectionState.READY
    assert states.is_ready(NODE, now())
    assert states.connection_delay(NODE, now()) == FOREVER

    clock.sleep(15_000)
    states.disconnected(NODE, now())
    assert states.state(NODE) is ConnectionState.DISCONNECTED
    assert not states.can_connect(NODE, now())
    assert states.connection_delay(NODE, now()) == about(BACKOFF)

    clock.sleep(states.connection_delay(NODE, now()) + 1)
    assert states.can_connect(NODE, now())


@pytest.mark.conformance("CCS-04")
def test_a_removed_node_is_unknown(states, clock):
    states.connecting(NODE, clock.milliseconds(), HOST)
    states.ready(NODE)
    states.disconnected(NODE, clock.milliseconds())
    states.remove(NODE)
    assert states.can_connect(NODE, clock.milliseconds())
    assert states.connection_delay(NODE, clock.milliseconds()) == 0


@pytest.mark.conformance("CCS-07")
def test_a_throttle_runs_down_and_never_moves_back(states, clock):
    now = clock.milliseconds
    states.connecting(NODE, now(), HOST)
    states.ready(NODE)
    states.throttle(NODE, now() + 100)
    states.throttle(NODE, now() + 50)
    assert not states.is_ready(NODE, now())
    clock.sleep(99)
    assert not states.is_ready(NODE, now())
    clock.sleep(1)
    assert states.is_ready(NODE, now())
    assert states.connection_delay(NODE, now()) == FOREVER


@pytest.mark.conformance("CCS-09")
def test_each_attempt_takes_the_hosts_next_address(states, clock, resolved, address):
    addresses = []
    for _ in range(3):
        states.connecting(NODE, clock.milliseconds(), "three")
        addresses.append(address("three"))
    assert addresses == HOSTS["three"]
    assert resolved == ["three"]


@pytest.mark.conformance("CCS-10")
def test_a_node_that_moves_to_another_host_is_resolved_anew(states, clock, address):
    states.connecting(NODE, clock.milliseconds(), "three")
    first = address("three")
    states.connecting(NODE, clock.milliseconds(), "moved")
    assert first != address("moved") == HOSTS["moved"][0]


def test_addresses_that_have_all_failed_are_resolved_again_beginning_with_another(states, clock, resolved, address):
    tried = []
    for _ in range(3):
        states.connecting(NODE, clock.milliseconds(), "moved")
        tried.append(address("moved"))
        states.disconnected(NODE, clock.milliseconds())
    assert tried == [*HOSTS["moved"], HOSTS["moved"][0]]
    assert resolved == ["moved", "moved"]


def test_after_resolving_again_the_address_that_was_tried_last_is_not_tried_first(states, clock, address):
    states.connecting(NODE, clock.milliseconds(), "moved")
    assert address("moved") == HOSTS["moved"][0]
    states.ready(NODE)
    states.disconnected(NODE, clock.milliseconds())  # from ready: the addresses are forgotten
    states.connecting(NODE, clock.milliseconds(), "moved")
    assert address("moved") == HOSTS["moved"][1]


@pytest.mark.conformance("CCS-12")
def test_preparing_means_connecting_or_checking(states, clock):
    assert not states.is_preparing(NODE)
    states.connecting(NODE, clock.milliseconds(), HOST)
    assert states.is_preparing(NODE)
    states.checking_api_versions(NODE)
    assert states.state(NODE) is ConnectionState.CHECKING_API_VERSIONS
    assert states.is_preparing(NODE)
    assert not states.is_ready(NODE, clock.milliseconds())
    states.disconnected(NODE, clock.milliseconds())
    assert not states.is_preparing(NODE)
    states.connecting(NODE, clock.milliseconds(), HOST)
    states.ready(NODE)
    assert not states.is_preparing(NODE)


def ends_at_once(states, now):
    states.disconnected(NODE, now)


def ends_while_versions_are_asked_for(states, now):
    states.checking_api_versions(NODE)
    states.disconnected(NODE, now)


def fails_to_authenticate(states, now):
    states.authentication_failed(NODE, now, AuthenticationFailed("wrong password"))


@pytest.mark.parametrize("end", [ends_at_once, ends_while_versions_are_asked_for, fails_to_authenticate])
def test_the_back_off_doubles_until_the_node_is_ready_however_its_connection_ended(states, clock, end):
    now = clock.milliseconds
    for attempt in range(5):
        states.connecting(NODE, now(), HOST)
        assert states.connecting_nodes == {NODE}
        end(states, now())
        assert states.connecting_nodes == set()
        delay = states.connection_delay(NODE, now())
        assert delay == pytest.approx(min(BACKOFF * 2**attempt, BACKOFF_MAX), rel=0.2)
        assert delay <= BACKOFF_MAX
        clock.sleep(delay - 1)
        assert not states.can_connect(NODE, now())
        clock.sleep(1)
        assert states.can_connect(NODE, now())
    states.connecting(NODE, now(), HOST)
    states.ready(NODE)
    states.disconnected(NODE, now())
    assert states.connection_delay(NODE, now()) == about(BACKOFF)


@pytest.mark.conformance("CCS-13")
def test_the_setup_timeout_doubles_with_each_failed_attempt_and_is_reset_by_success(states, clock):
    now = clock.milliseconds
    for timeout in (SETUP, 2 * SETUP, 4 * SETUP, 8 * SETUP):
        states.connecting(NODE, now(), HOST)
        assert states.setup_timeout_ms(NODE) == about(timeout)
        assert states.connecting_nodes == {NODE}
        states.disconnected(NODE, now())
        assert states.connecting_nodes == set()
    for _ in range(3):
        states.connecting(NODE, now(), HOST)
        states.disconnected(NODE, now())
    assert SETUP_MAX * 0.8 <= states.setup_timeout_ms(NODE) <= SETUP_MAX

    states.connecting(NODE, now(), HOST)
    states.ready(NODE)
    assert states.connecting_nodes == set()
    assert states.setup_timeout_ms(NODE) == about(SETUP)
    states.disconnected(NODE, now())
    assert states.setup_timeout_ms(NODE) == about(SETUP)
    states.connecting(NODE, now(), HOST)
    assert states.setup_timeout_ms(NODE) == about(SETUP)
    assert states.connecting_nodes == {NODE}


@pytest.mark.conformance("CCS-14")
def test_attempts_that_take_too_long_are_told(states, clock):
    now = clock.milliseconds
    states.connecting("1001", now(), HOST)
    states.connecting("2002", now(), HOST)
    assert states.timed_out_connections(now()) == []
    clock.sleep(5_000)
    states.connecting("3003", now(), HOST)
    clock.sleep(7_001)
    assert sorted(states.timed_out_connections(now())) == ["1001", "2002"]
    states.disconnected("1001", now())
    states.disconnected("2002", now())
    clock.sleep(7_000)
    assert states.timed_out_connections(now()) == ["3003"]
    states.disconnected("3003", now())
    assert states.timed_out_connections(now()) == []


def test_a_failed_authentication_is_remembered_until_the_node_is_ready(states, clock):
    error = AuthenticationFailed("wrong password")
    states.connecting(NODE, clock.milliseconds(), HOST)
    states.authentication_failed(NODE, clock.milliseconds(), error)
    assert states.is_disconnected(NODE)
    assert states.authentication_error(NODE) is error
    states.connecting(NODE, clock.milliseconds(), HOST)
    assert states.authentication_error(NODE) is error
    states.ready(NODE)
    assert states.authentication_error(NODE) is None


@pytest.mark.parametrize(
    "operation",
    [
        lambda states: states.disconnected(NODE, 0),
        lambda states: states.ready(NODE),
        lambda states: states.checking_api_versions(NODE),
        lambda states: states.throttle(NODE, 1),
        lambda states: states.current_address(NODE),
        lambda states: states.state(NODE),
    ],
)
def test_a_node_that_was_never_connected_has_no_state_to_change(states, operation):
    with pytest.raises(IllegalState, match=NODE):
        operation(states)


def test_an_attempt_is_there_only_while_the_node_is_connecting(states, clock):
    assert states.attempt(NODE) is None
    states.connecting(NODE, clock.milliseconds(), HOST)
    first = states.attempt(NODE)
    assert first is not None
    assert states.attempt(NODE) is first
    states.disconnected(NODE, clock.milliseconds())
    assert states.attempt(NODE) is None
