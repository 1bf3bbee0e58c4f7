"""The rules find every planted fault, and in captures of real clusters nothing that did not happen."""

from pathlib import Path

import pyarrow as pa
import pytest
from fleet_faults import fits
from table_truth import CAPTURES, name_of

from kproto.generate import PlannedFleet, findings_truth, write_captures
from kproto.generate.plants import PLANTS
from kproto.tables import chunks, read
from kproto.tables.resolved import resolved_reader
from kproto.tables.stored import reader_of
from kproto.verdicts.doctor import Finding
from kproto.verdicts.facts import Facts
from kproto.verdicts.found import facts_of_clusters
from kproto.verdicts.rules import findings


def found_in(path: Path) -> list[Finding]:
    return findings(Facts(chunks([str(path)])))


@pytest.mark.slow
def test_tables_and_captures_give_the_same_findings() -> None:
    for path in CAPTURES[:3]:
        tables = read(path)
        ((_cluster, facts),) = facts_of_clusters(resolved_reader(reader_of(tables)))
        assert findings(facts) == found_in(path)
        assert findings(Facts(chunks([str(path)], chunk_bytes=20_000))) == found_in(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_planted_fault_is_found(tmp_path: Path, name: str, seed: int) -> None:
    protocol = "2.4" if seed % 2 == 0 and "2.4" in PLANTS[name].protocols else "3.9"
    fleet = PlannedFleet(
        seed=seed, brokers=6, topics=20, partitions=60, isr_changes=150, elections=3, plants=(name,), protocol=protocol
    )
    truth = findings_truth(fleet)
    (path,) = write_captures(fleet, tmp_path).files
    found = found_in(path)
    for wanted in truth.required:
        assert any(fits(wanted, row) and wanted.partition in (None, row.partition) for row in found), wanted


@pytest.mark.parametrize(("name", "lacking"), [("ibp-3.9-a-cut", 3), ("ibp-2.4-IV1-a", 5), ("ibp-3.9-a", 0)])
def test_connections_that_began_before_the_capture_are_told_where_they_were_counted(name: str, lacking: int) -> None:
    (path,) = (path for path in CAPTURES if name_of(path) == name)
    assert sum(row.count for row in found_in(path) if row.rule == "KP062") == lacking
    tables = read(path)
    captures = tables["captures"]
    place = captures.column_names.index("without_handshake")
    uncounted = captures.set_column(place, captures.field(place), pa.nulls(captures.num_rows, pa.int64()))
    assert not [row for row in findings(Facts([tables | {"captures": uncounted}])) if row.rule == "KP062"]
