"""Figures of each day and broker: what is counted, and that days add up."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import DATA
from packets import Packet, pcap, read_pcap
from tasks_here import TasksHere

import kproto.tables
from kproto.pipeline import OutputDirectory, analyze
from kproto.query import ask, ask_sql, open_tables
from kproto.query.rollups import broker_days, roll_up
from kproto.tables.stored import current_tables

DAY_US = 86_400_000_000
FIGURES = (
    "requests", "refusals", "unanswered", "leader_changes", "isr_shrinks", "out_of_isr_minutes", "offline_minutes",
)  # fmt: skip


def moved(tables: dict[str, pa.Table], us: int) -> dict[str, pa.Table]:
    """The tables with all requests and responses at another time."""
    return tables | {
        name: tables[name].set_column(
            tables[name].column_names.index("ts"),
            tables[name].schema.field("ts"),
            pc.add(tables[name]["ts"].cast(pa.int64()), us).cast(pa.timestamp("us", "UTC")),
        )
        for name in ("requests", "responses")
    }


def rows(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    with open_tables(tables) as sql:
        answer = ask_sql(sql, "FROM broker_days ORDER BY ALL")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@pytest.mark.parametrize("name", ["external-controller-a", "ibp-2.8-a", "ibp-3.9-a"])
def test_days_add_up_wherever_midnight_falls(name: str) -> None:
    tables = kproto.tables.read(str(DATA / "captures" / f"{name}.pcap.gz"))
    times = tables["requests"]["ts"].cast(pa.int64()).sort()
    whole, middle = times[0].as_py() // DAY_US, times[len(times) // 2].as_py()
    assert times[-1].as_py() // DAY_US == whole
    alone = rows(tables)
    assert {row["date"] for row in alone} == {alone[0]["date"]}
    both = rows(moved(tables, (whole + 1) * DAY_US - middle))
    assert len({row["date"] for row in both}) == 2
    for row in alone:
        days = [each for each in both if each["broker_id"] == row["broker_id"]]
        for figure in FIGURES:
            assert sum(each[figure] for each in days) == pytest.approx(row[figure]), (row["broker_id"], figure)
        lags: Counter[int] = Counter()
        for each in days:
            lags.update(each["lag_us_log"])
        assert lags.total() == sum(each["updates"] for each in days) >= row["updates"]
    (total,) = (row for row in alone if row["broker_id"] is None)
    with open_tables(tables) as sql:
        offline = """
            SELECT coalesce(sum(epoch_us(least(coalesce(valid_to, until), until)) - epoch_us(valid_from)) / 6e7, 0)
            FROM spans, (SELECT max(ts) AS until FROM requests) WHERE leader = -1
        """
        assert total["offline_minutes"] == pytest.approx(ask_sql(sql, offline).rows[0][0])
        shrinks = "SELECT count(*) FROM isr_events WHERE kind <> 'expand'"
        assert total["isr_shrinks"] == ask_sql(sql, shrinks).rows[0][0]
        refused = ask_sql(sql, "SELECT count(*), count(*) FILTER (error_code <> 0) FROM requests").rows
        assert [(total["requests"], total["refusals"])] == refused


def test_the_worst_broker_of_a_week_comes_first() -> None:
    tables = kproto.tables.read(str(DATA / "captures" / "ibp-2.8-a.pcap.gz"))
    with open_tables(tables) as sql:
        answer = ask(sql, "worst")
        p99 = dict(ask_sql(sql, "SELECT broker_id, quantile_disc(lag_us, 0.99) FROM propagation GROUP BY ALL").rows)
    found = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    assert [row["place"] for row in found] == [1, 2, 3]
    minutes = [(row["offline_partition_minutes"], row["out_of_isr_partition_minutes"]) for row in found]
    assert minutes == sorted(minutes, reverse=True)
    for row in found:
        assert row["p99_us"] == pytest.approx(p99[row["broker"]], rel=0.05)


@pytest.mark.slow
def test_a_day_whose_states_are_gone_is_computed_again(tmp_path: Path) -> None:
    """The next day is computed from the states that the day before it left; without them that day is computed too."""
    link, packets = read_pcap(DATA / "captures" / "ibp-2.8-a.pcap.gz")
    third = len(packets) // 3
    for number in range(3):
        part = packets[third * number : third * (number + 1)]
        file = tmp_path / f"control.pcap{number}"
        ns = number * DAY_US * 1000
        file.write_bytes(pcap([Packet(each.time_ns + ns, each.data, each.on_wire) for each in part], link))
        analyze(TasksHere(), [str(file)], OutputDirectory(tmp_path / "out"))  # type: ignore[arg-type]
        if number == 1:
            assert roll_up(tmp_path / "out") == (2, 2)
            (tmp_path / "out" / "kproto-rollups" / "date=2026-11-21" / "held.parquet").unlink()
    assert roll_up(tmp_path / "out") == (2, 3)
    stored = current_tables(tmp_path / "out")
    kept, made = broker_days(stored, tmp_path / "out"), broker_days(stored)
    assert rounded(kept) == rounded(made)


def test_a_day_that_gets_more_rows_is_computed_again(tmp_path: Path) -> None:
    link, packets = read_pcap(DATA / "captures" / "external-controller-a.pcap.gz")
    half = len(packets) // 2
    for number, part in enumerate((packets[:half], packets[half:])):
        file = tmp_path / f"control.pcap{number}"
        file.write_bytes(pcap(part, link))
        analyze(TasksHere(), [str(file)], OutputDirectory(tmp_path / "out"))  # type: ignore[arg-type]
        assert roll_up(tmp_path / "out") == (1, 1)
    assert roll_up(tmp_path / "out") == (0, 1)
    stored = current_tables(tmp_path / "out")
    assert rounded(broker_days(stored, tmp_path / "out")) == rounded(broker_days(stored))


def rounded(days: pa.Table) -> list[dict[str, Any]]:
    """The rows, with sums of minutes to the millisecond: they are added up in any order."""
    rows = days.to_pylist()
    return [{k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
