"""Zombies, rivals and requests for an earlier registration: one verdict in inspect, summary, query and report."""

import json
from typing import Any

import pytest
from commands import kproto_prints as run
from table_truth import CAPTURES, name_of

import kproto.tables
from kproto.report.facts import report_facts
from kproto.verdicts.epochs import Epochs, Stale

A, B = ("10.0.0.1", 9092), ("10.0.0.2", 9092)


def learned(*requests: tuple[Any, ...], is_kraft_controller: bool = False) -> Epochs:
    """The epochs of requests (time, broker, controller, its epoch, broker epoch, error)."""
    epochs = Epochs()
    for ts, broker, controller, epoch, broker_epoch, error in requests:
        epochs.learn(
            ts, ts, broker, controller, epoch, broker_epoch, is_kraft_controller=is_kraft_controller, error_code=error
        )
    return epochs


@pytest.mark.parametrize("error", [-1, 11, 77, 31, None])
def test_a_request_that_was_not_accepted_makes_nobody_a_zombie(error: int | None) -> None:
    epochs = learned((1, A, 9, 9, 50, error), (2, A, 8, 8, 40, 0))
    assert list(epochs.stale(3, A, 8, 40, 0, is_kraft_controller=False)) == []


def test_a_lower_epoch_than_any_broker_accepted_before_is_a_zombies() -> None:
    epochs = learned((1, A, 1, 1, -1, 0), (5, A, 2, 2, -1, 0))
    assert list(epochs.stale(5, B, 1, -1, 0, is_kraft_controller=False)) == []
    (stale,) = epochs.stale(6, B, 1, -1, 0, is_kraft_controller=False)
    assert (stale.reason, stale.zombie, stale.known_epoch) == ("controller_epoch_regressed", True, 2)


def test_broker_epochs_of_the_two_modes_are_not_compared() -> None:
    epochs = learned((1, A, 1, 1, 4_000_000, 0))
    assert list(epochs.stale(2, A, 2, 77, 0, is_kraft_controller=True)) == []
    assert list(epochs.stale(2, A, 2, 77, 77, is_kraft_controller=True)) == [Stale("refused_as_stale", False, 77, None)]


def test_an_accepted_request_with_a_lower_broker_epoch_is_not_stale() -> None:
    epochs = learned((1, A, 1, 1, 130, 0))
    assert list(epochs.stale(2, A, 1, 30, 0, is_kraft_controller=False)) == []
    assert list(epochs.stale(2, A, 1, 29, 77, is_kraft_controller=False)) == [
        Stale("broker_epoch_regressed", False, 29, 130)
    ]


def test_two_controllers_with_one_epoch_are_found_and_one_in_two_modes_is_not() -> None:
    epochs = learned((1, A, 1, 1, -1, 0), (2, B, 7, 1, -1, 0), (3, A, 8, 2, -1, 0), (4, A, 9, 2, -1, 11))
    assert epochs.rivals() == {1: {1: 1, 7: 2}}


def test_an_epoch_went_back_within_one_registration_alone() -> None:
    restarted = learned((1, A, 2, 2, 10, 0), (2, A, 1, 1, 11, 0))
    assert restarted.went_back() == []
    (back,) = learned((1, A, 2, 2, 10, 0), (2, A, 1, 1, 10, 0)).went_back()
    assert (back.broker, back.higher, back.lower, back.at) == (A, 2, 1, 2)


def test_a_healthy_migration_has_no_stale_request() -> None:
    path = next(path for path in CAPTURES if name_of(path) == "ibp-3.9-migration-a")
    assert run("query", str(path), "stale", "--format", "json") == ""


def test_a_rubbish_epoch_that_nobody_answered_makes_no_accepted_request_stale() -> None:
    path = next(path for path in CAPTURES if name_of(path) == "external-controller-a")
    rows = [json.loads(line) for line in run("query", str(path), "stale", "--format", "json").splitlines()]
    assert len(rows) == 16
    assert {row["error_code"] for row in rows} == {11, 77}


def test_a_partitions_stale_epoch_is_called_no_zombie_everywhere() -> None:
    path = str(next(path for path in CAPTURES if name_of(path) == "external-controller-a"))
    assert "(no zombie)" in run("summary", path)
    assert "(no zombie)" in run("query", path, "errors")
    assert "(no zombie)" in run("inspect", path, "--errors")
    facts = report_facts(kproto.tables.read(path))
    assert any("(no zombie)" in (row["reason"] or "") for row in facts["errors"])
