"""Rehearsals: steps as data, and a report of each that counts what the brokers really got."""

import random
import threading

import pytest
from network_peers import until
from scripted_fleet import ScriptedFleet

from channel.errors import BrokerNotAvailable
from channel.rehearsal.fleet_steps import Step, StepReport, rehearse, report_table
from channel.rehearsal.scripted_controller import ScriptedController


def run(fleet, *lines, **settings):
    return list(rehearse(fleet, map(Step.of, lines), **{"quiet_s": 0.05, "timeout_s": 60.0, **settings}))


@pytest.fixture
def fleet():
    with ScriptedFleet(4) as made:
        yield made


def test_every_broker_that_is_up_hears_of_a_kill_and_of_the_return(fleet):
    fleet.controller.create_topic("orders", assignment=[[0, 1], [2, 3]])
    fleet.controller.wait_all()
    killed, restarted = run(fleet, "kill 0", "restart 0-3")
    assert (killed.step, killed.broker_ids, killed.heard, killed.listening) == ("kill 0", [0], 3, 3)
    assert killed.is_complete
    assert 0 < killed.heard_p50_s <= killed.heard_p99_s == killed.heard_all_s <= killed.settled_s
    assert killed.requests == {"LeaderAndIsr": 1, "UpdateMetadata": 3}  # broker 1 leads alone; all three learn of it
    assert set(killed.request_bytes) == set(killed.requests)
    assert all(size > 30 * killed.requests[name] for name, size in killed.request_bytes.items())
    assert (restarted.heard, restarted.listening, restarted.is_complete) == (4, 4, True)
    assert restarted.broker_ids == [0]  # the others were up all the time
    assert fleet[0].is_up


@pytest.mark.slow
def test_a_paused_broker_need_not_hear_of_anything(fleet):
    paused, bounced = run(fleet, "pause 3", "bounce 0")
    (resumed,) = run(fleet, "resume 3", quiet_s=2.0)  # it takes its requests in its own time
    assert (paused.heard, paused.listening, paused.heard_all_s, paused.requests) == (0, 0, None, {})
    assert (bounced.heard, bounced.listening) == (3, 3)
    assert resumed.is_complete
    assert resumed.requests["UpdateMetadata"] >= 1  # broker 3 catches up


def test_a_step_that_not_all_have_heard_of_ends_with_its_time(fleet, monkeypatch):
    monkeypatch.setattr(fleet.controller, "mark_dead", lambda broker_id: None)  # the controller does not notice
    (killed,) = run(fleet, "kill 0", timeout_s=0.1)
    assert (killed.heard, killed.listening, killed.heard_all_s, killed.is_complete) == (0, 3, None, False)


def test_the_other_steps(fleet):
    events = run(fleet, "slow 1 0.25", "wait 0.01", "leave 2")
    assert fleet.delays == {1: 0.25}
    assert fleet.left == [2]
    assert [e.step for e in events] == ["slow 1 0.25", "wait 0.01", "leave 2"]
    assert fleet.on_answered is None, "a step that is over hears no more"
    assert (events[2].heard, events[2].listening) == (3, 3)


def test_a_new_controller_is_waited_for(fleet):
    steps = rehearse(fleet, [Step.of("new-controller")], quiet_s=0.05, timeout_s=60.0)
    successors = []

    def succeed():
        until(lambda: fleet.on_answered is not None)
        successors.append(ScriptedController(fleet, controller_id=7, controller_epoch=2).start())

    electing = threading.Thread(target=succeed)
    electing.start()
    (event,) = steps
    electing.join()
    successors[0].close()
    assert (event.heard, event.listening, event.is_complete) == (4, 4, True)
    assert event.requests["UpdateMetadata"] >= 4


def test_brokers_by_range_and_at_random(fleet):
    assert Step("kill", "0,2-3,2").broker_ids(fleet, random.Random(0)) == [0, 2, 3]
    chosen = Step("kill", "random:2").broker_ids(fleet, random.Random(0))
    assert len(chosen) == 2
    assert Step("kill", "random:2").broker_ids(fleet, random.Random(0)) == chosen
    fleet.cluster.kill(chosen[0])
    assert chosen[0] not in Step("kill", "random:3").broker_ids(fleet, random.Random(0))


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ("", "'' is no number"),
        ("x", "'x' is no number"),
        ("1-", "'' is no number"),
        ("3-1", "3-1 is empty"),
        ("random:", "'' is no number"),
        ("random:5", "only 4 are up"),
        ("random:-1", "'-1' is no number"),
    ],
)
def test_brokers_that_cannot_be_read_are_refused(fleet, brokers, reason):
    with pytest.raises(ValueError, match=rf"names no brokers \({reason}\)"):
        Step("kill", brokers).broker_ids(fleet, random.Random(0))


def test_a_broker_that_is_not_there_is_named_even_in_a_huge_range(fleet):
    with pytest.raises(BrokerNotAvailable, match="no broker 4 here"):
        Step("kill", "0-2000000000").broker_ids(fleet, random.Random(0))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("explode 3", "no action 'explode'; there are: kill, restart"),
        ("kill", "write: kill BROKERS"),
        ("kill 1 2", "write: kill BROKERS"),
        ("slow 1", "write: slow BROKERS SECONDS"),
        ("slow 1 long", "the seconds are no number"),
        ("wait", "write: wait SECONDS"),
        ("wait -1", "the seconds must be 0 to 86400"),
        ("new-controller 3", "write: new-controller$"),
        ("", "write: ACTION BROKERS"),
    ],
)
def test_a_line_that_is_no_step_is_refused(line, why):
    with pytest.raises(ValueError, match=why):
        Step.of(line)


def test_an_action_that_there_is_not_changes_nothing(fleet):
    with pytest.raises(ValueError, match="no action 'explode'"):
        list(rehearse(fleet, [Step("explode", "0")]))
    assert fleet.on_answered is None


def test_the_table_has_a_line_for_each_event():
    event = StepReport(
        "kill 0", [0], 3, 3, 0.001, 0.002, 0.0025, 0.5, True, {"UpdateMetadata": 3}, {"UpdateMetadata": 4096}
    )
    head, heard, silent = report_table([event, StepReport("wait 1.0", [])])
    assert head.split()[:2] == ["step", "heard"]
    assert heard.split() == ["kill", "0", "3/3", "0.001", "0.002", "0.003", "0.500", "0", "0", "3", "4,096"]
    assert silent.split()[2:7] == ["0/0", "-", "-", "-", "-"]
    assert len(head) == len(heard) == len(silent)
