"""Messages, findings, answers and Arrow tables show themselves in a notebook; the example notebook runs."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from kproto.codec import get_codec
from kproto.notebook import arrow_html, table_html

ROOT = Path(__file__).parents[1]
HOSTILE = "<script>alert(1)</script>\x1b[2J"


class Cells(HTMLParser):
    """The texts of a page, and the names of its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("codec", [get_codec("cython"), get_codec("construct")], ids=["cython", "construct"])
def test_a_message_shows_its_fields_and_a_row_for_each_topic(codec) -> None:
    cls = codec.message_class(5, "request")
    values = {"controllerId": 9, "controllerEpoch": 3, "brokerEpoch": 41, "topicStates": []}
    values["topicStates"] = [{"topicName": HOSTILE, "partitionStates": [{"partitionIndex": 0, "leaderEpoch": 4}]}] * 30
    for state in values["topicStates"][0]["partitionStates"]:
        state["deletePartition"] = True
    cells = Cells(cls.from_json(values, 3)._repr_html_())
    assert "StopReplicaRequest" in cells.texts
    assert {"controller_epoch", "3", "41", "topic_states", "10 more rows"} <= set(cells.texts)
    assert "script" not in cells.elements
    assert not any("\x1b" in text for text in cells.texts)


def test_only_the_first_rows_of_a_long_table_are_read() -> None:
    rows = ([n] for n in iter(int, 1))  # without end
    assert Cells(table_html(["n"], rows, 10**9)).texts.count("0") == 20


def test_an_arrow_table_shows_its_first_rows() -> None:
    cells = Cells(arrow_html(pa.table({"topic": [HOSTILE] * 25, "partition": range(25)})))
    assert {"topic", "partition", "19", "5 more rows"} <= set(cells.texts)
    assert "script" not in cells.elements


@pytest.mark.slow
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("jupyter-execute")),
        "--output",
        str(tmp_path / "run"),
        "--allow-errors",
    ]
    source = ROOT / "examples" / "first_look.ipynb"
    copy = tmp_path / "first_look.ipynb"
    copy.write_text(source.read_text(encoding="utf-8").replace("tests/data/", f"{ROOT}/tests/data/"), encoding="utf-8")
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "run.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output["output_type"] == "error"]
    shown = ["".join(output["data"]["text/html"]) for output in outputs if "data" in output]
    for text, html in zip(["LeaderAndIsrRequest", "KP011", "leader_epoch", "correlation_id"], shown, strict=True):
        assert text in html
