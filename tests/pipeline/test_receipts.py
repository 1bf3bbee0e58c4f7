"""The driver's part of a run of 300,000 tasks, in bounded memory."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kproto.pipeline.output import OutputDirectory
from kproto.pipeline.stages import TaskOutput
from kproto.pipeline.tasks import merge_receipts, merged, receipt
from kproto.verdicts.summary import Figures

TASKS: Final = 300_000


@pytest.mark.slow
def test_the_driver_merges_300000_tasks_below_a_gigabyte(tmp_path: Path) -> None:
    """Spark's merging tasks run in the same process here, and count too."""
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1 << 30


def outputs(group: range) -> Iterator[TaskOutput]:
    """Of tasks that settled bodies, with names as long as theirs."""
    for task in group:
        files = {f"{name}/part-{task:032x}.zstd.parquet": task for name in ("bodies", "partition_states")}
        folder = f"/shared/tables/kproto-runs/20261121T081500.000000/tasks/task-{task:032x}"
        yield TaskOutput(Figures(), {folder: files}, bodies=1, histories={f"{folder}/history.parquet": task})


def main(directory: str) -> None:
    """Do what the driver does with 300,000 tasks; print the most memory that it took."""
    place = Path(directory)
    groups = [range(at, min(at + 512, TASKS)) for at in range(0, TASKS, 512)]
    first, *others = groups
    batches = [*merge_receipts(map(receipt, outputs(first))), *(receipt(merged(outputs(group))) for group in others)]
    rows = [batch.column(0)[0].as_py() for batch in batches]
    made = merged(pickle.loads(row) for row in rows)
    assert made.bodies == len(made.files) == len(made.histories) == TASKS
    listed = {file: count for files in made.files.values() for file, count in files.items()}
    assert len(listed) == 2 * TASKS
    out = OutputDirectory(place / "tables")
    with out.writing():
        out.publish({"tables": {}, "files": listed})
    (most,) = (
        line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    print(int(most) * 1024)  # of this program alone: getrusage counts what it was forked from


if __name__ == "__main__":
    main(sys.argv[1])
