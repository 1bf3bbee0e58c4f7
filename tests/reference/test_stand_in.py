"""The reference in the extension's place: the same columns of the same bytes, and the same answers of the commands."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kproto
from kproto.codec import get_codec
from kproto.errors import DecodeError, UnsupportedApi
from kproto.reference import stand_in

extension: Any = get_codec("cython")
ROOT = Path(kproto.__file__).parent.parent
DATA = ROOT / "tests" / "data"
ROWS = [
    row
    for path in sorted((DATA / "vectors" / "valid").glob("*.jsonl.gz"))
    for row in map(json.loads, gzip.decompress(path.read_bytes()).splitlines()[::6])
    if row["api"] in (4, 5, 6)
]

PURE = """
import importlib.abc, importlib.machinery, sys, types
marker = types.ModuleType("kproto._pure_wheel")
marker.__spec__ = importlib.machinery.ModuleSpec(marker.__name__, None)
sys.modules[marker.__name__] = marker
class Elsewhere(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("kproto._codec", "fcntl", "resource", "termios", "pwd", "grp"):  # Windows has none of them
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Elsewhere())
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules.pop(name, None)
import kproto.cli
sys.exit(kproto.cli.main(sys.argv[1:], standalone_mode=False))
"""


@pytest.mark.parametrize("api", [4, 5, 6])
@pytest.mark.parametrize("kind", ["request", "response"])
def test_columns_are_the_extensions(api: int, kind: str) -> None:
    """Of every version: rows, heads, counts, what all replicas have in common; and requests are written alike."""
    rows = [row for row in ROWS if (row["api"], row["kind"]) == (api, kind)]
    assert {row["version"] for row in rows} >= set(range(4))
    ours, theirs = stand_in.ColumnsBuilder(api, kind), extension.ColumnsBuilder(api, kind)
    for row in rows:
        version, data = row["version"], bytes.fromhex(row["hex"])
        count = theirs.append(version, data)
        assert ours.append(version, data) == count
        assert (ours.frames, ours.topic_count, len(ours)) == (theirs.frames, theirs.topic_count, len(theirs))
        assert ours.message.to_json(version) == theirs.message.to_json(version)
        if api == 4 and kind == "request" and count:
            assert sorted(ours.common_replicas) == sorted(theirs.common_replicas)
        if kind == "request":
            columns, their_columns = (m.decode_columns(api, version, data) for m in (stand_in, extension))
            told = extension.encode_columns(their_columns.message, version, their_columns)
            assert stand_in.encode_columns(columns.message, version, columns) == told
            assert b"".join(stand_in.encode_batches(columns.message, version, [columns])) == told
    ours.drop_last()
    theirs.drop_last()
    columns, their_columns = ours.finish(), theirs.finish()
    assert (columns.names, len(columns)) == (their_columns.names, len(their_columns))
    batch, their_batch = pa.record_batch(columns), pa.record_batch(their_columns)
    assert batch.schema == their_batch.schema
    assert batch.to_pylist() == their_batch.to_pylist()
    assert (len(ours), ours.frames) == (len(theirs), theirs.frames) == (0, 0)


def test_missing_columns_hold_the_defaults_and_others_are_refused() -> None:
    for api in (4, 5, 6):
        ours, theirs = (
            pa.record_batch(module.Columns.from_sequences(api, topic=["a", "b"], partition=[1, 2]))
            for module in (stand_in, extension)
        )
        assert ours.to_pylist() == theirs.to_pylist()
    with pytest.raises(TypeError, match="no such columns: colour"):
        stand_in.Columns.from_sequences(6, topic=["a"], partition=[1], colour=["red"])
    with pytest.raises(UnsupportedApi):
        stand_in.ColumnsBuilder(3)


def test_a_damaged_message_leaves_the_rows_before_it() -> None:
    builder = stand_in.ColumnsBuilder(6)
    row = next(row for row in ROWS if (row["api"], row["kind"], row["version"]) == (6, "request", 8))
    data = bytes.fromhex(row["hex"])
    count = builder.append(8, data)
    with pytest.raises(DecodeError):
        builder.append(8, data[:20])
    assert (len(builder), builder.frames) == (count, 1)


def test_a_wheel_without_extensions_answers_as_the_others_and_says_so_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["doctor", str(DATA / "captures" / "ibp-3.9-a-cut.pcap.gz")]
    done = subprocess.run(
        [sys.executable, "-c", PURE, *arguments], capture_output=True, text=True, timeout=500, cwd=ROOT, check=False
    )
    import kproto.cli

    status = kproto.cli.main(arguments, standalone_mode=False)
    assert (done.returncode, done.stdout) == (status or 0, capsys.readouterr().out), done.stderr[-2000:]
    assert done.stderr.count("this kproto has no extension") == 1
