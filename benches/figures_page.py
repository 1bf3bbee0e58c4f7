"""The tables of docs/figures.md, made from the result files.

    python benches/figures_page.py            print them
    python benches/figures_page.py --write    put them into the page, between their marks

A table stands between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``; the facts of the machine stand below
it. A cell shows the median of the paired ratios, the least and the largest in brackets. A missed limit is bold.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codec_bodies import VERSIONS
from codec_goals import NEWEST, SHAPES
from figures import RESULTS, Line, limit_of, load, number, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).parents[1] / "docs" / "figures.md"
MARK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
PIPELINE = ("small", "speed", "sharing", "workers", "growth")
"""The groups of the pipeline's rows, each measured for itself, in the order of the table."""
APIS = {"leaderandisr": "LeaderAndIsr", "stopreplica": "StopReplica", "updatemetadata": "UpdateMetadata"}


def tables(results: Path = RESULTS) -> dict[str, str]:
    """Every table by its name, as Markdown."""
    codec, codec_lines = load(results / "codec.json")
    channel, channel_lines = load(results / "channel.json")
    thousand, thousand_lines = load(results / "thousand.json")
    shown = {id(row) for api in NEWEST for row in _newest(codec_lines, api)}
    rest = [row for row in codec_lines if row.group != "versions" and id(row) not in shown]
    of_codec = _facts(codec, f"rounds: {codec['settings']['rounds']}", "java", "go")
    of_channel = _facts(channel, f"process pairs: {channel['settings']['pairs']}", "java")
    controller, controller_lines = load(results / "controller.json")
    of_controller = f"process pairs: {controller['settings']['pairs']}; heap of Kafka: {controller['settings']['heap']}"
    sizes = {path.stem.partition("-")[2]: load(path) for path in sorted(results.glob("controller-*.json"))}
    size_lines = [row for _result, lines in sizes.values() for row in lines]
    of_sizes = "".join(
        _facts(result, f"{name}: process pairs: {len(result['rounds'])}", "java")
        for name, (result, _lines) in sizes.items()
    )
    secured, secured_lines = load(results / "secured.json")
    tap, tap_lines = load(results / "tap.json")
    tshark, tshark_lines = load(results / "tshark.json")
    of_tshark = _facts(tshark, f"tshark {tshark['settings']['tshark']}; pairs: {tshark['settings']['pairs']}")
    measured = {name: results / f"pipeline-{name}.json" for name in PIPELINE}
    pipeline = {name: load(path) for name, path in measured.items() if path.exists()}
    pipeline_lines = [row for _result, lines in pipeline.values() for row in lines]
    of_pipeline = "".join(
        _facts(result, f"{name}: rounds: {len(result['rounds'])}", "java")
        for name, (result, _lines) in pipeline.items()
    )
    doctor = results / "doctor.json"
    of_thousand = _facts(thousand, f"processes: {thousand['settings']['processes']}")
    return {
        "codec": "\n".join(_by_shape(codec_lines)) + of_codec,
        "codec-versions": "\n".join(_by_version(codec_lines)) + of_codec,
        "codec-rest": "\n".join(_plain(rest)) + of_codec,
        "channel": "\n".join(_plain(channel_lines)) + of_channel,
        "controller": "\n".join(_plain(controller_lines)) + _facts(controller, of_controller, "java"),
        "controller-size": "\n".join(_plain(size_lines)) + of_sizes,
        "secured": "\n".join(_plain(secured_lines)) + _facts(secured, f"process pairs: {secured['settings']['pairs']}"),
        "tap": "\n".join(_plain(tap_lines)) + _facts(tap, f"process pairs: {tap['settings']['pairs']}"),
        "tshark": "\n".join(_plain(tshark_lines)) + of_tshark,
        "pipeline": "\n".join(_plain(pipeline_lines)) + of_pipeline,
        "thousand": "\n".join(_plain(thousand_lines)) + of_thousand,
    } | ({"doctor": _of_doctor(doctor)} if doctor.exists() else {})


def _of_doctor(path: Path) -> str:
    result, lines = load(path)
    return "\n".join(_plain(lines)) + _facts(result, f"rounds: {result['settings']['pairs']}")


def _newest(lines: list[Line], api: str) -> list[Line]:
    return [row for row in lines if row.group == "codec" and row.case in {f"{api}-{shape}" for shape in SHAPES}]


def _by_shape(lines: list[Line]) -> list[str]:
    """A row for each operation and peer, a column for each shape of the newest requests."""
    columns = [f"{api}-{shape}" for api in NEWEST for shape in SHAPES]
    found = {(row.what, row.peer, row.case): row for api in NEWEST for row in _newest(lines, api)}
    heads = [f"{name(body)}, {shape_of(body)}" for body in columns]
    out = [_row("ns a partition", heads), _row("---", ["---"] * len(columns))]
    for what, peer in dict.fromkeys((what, peer) for what, peer, _ in found):
        cells = [_cell(found[what, peer, body]) for body in columns]
        out.append(_row(f"{what} / {peer}", cells))
    return out


def _by_version(lines: list[Line]) -> list[str]:
    """A row for each API: the least and the largest median of all its versions."""
    versions = [row for row in lines if row.group == "versions"]
    kinds = list(dict.fromkeys((row.what, row.peer) for row in versions))
    heads = [
        f"{what} / {peer}, {limit_of(next(r for r in versions if (r.what, r.peer) == (what, peer)))}"
        for what, peer in kinds
    ]
    out = [_row("100x100", heads), _row("---", ["---"] * len(kinds))]
    for api, numbers in VERSIONS.items():
        cells = []
        for what, peer in kinds:
            mine = [row for row in versions if row.case.startswith(f"{api}-") and (row.what, row.peer) == (what, peer)]
            measured = sorted((row for row in mine if row.value is not None), key=lambda row: row.value or 0)
            if not measured:
                cells.append("-")
                continue
            missed = [row for row in mine if row.verdict == "MISSED"]
            ends = " to ".join(f"{ratio(row.value)} (v{version(row)})" for row in (measured[0], measured[-1]))
            cells.append(
                ends + (f", **missed in {', '.join('v' + version(row) for row in missed)}**" if missed else "")
            )
        out.append(_row(f"{APIS[api]} {numbers[0]}-{numbers[-1]}", cells))
    return out


def _plain(lines: Iterable[Line]) -> list[str]:
    """A row for each line: figures, ratio, spread, limit."""
    out = [_row("", ["kproto", "beside", "ratio", "limit"]), _row("---", ["---"] * 4)]
    for row in lines:
        case = f"{name(row.case)}, {shape_of(row.case)}" if re.fullmatch(r"[a-z]+-\d+-\d+x\d+", row.case) else row.case
        ours = f"{number(row.ours)} {row.unit}".strip()
        theirs = f"{row.peer}: {number(row.theirs)} {row.unit}".strip() if row.peer else ""
        shown = f"{ratio(row.value)} ({ratio(row.low)}-{ratio(row.high)})"
        if not row.peer:
            shown = f"({number(row.low)}-{number(row.high)})"
        if row.value is None:
            ours = theirs = shown = ""
        limit = limit_of(row) + (f" **{row.verdict.lower()}**" if row.verdict in ("MISSED", "NOT MEASURED") else "")
        out.append(_row(", ".join(filter(None, (row.what, case))), [ours, theirs, shown, limit.strip()]))
    return out


def _cell(row: Line) -> str:
    if row.value is None:
        return "not measured"
    value = f"{ratio(row.value)} ({ratio(row.low)}-{ratio(row.high)})"
    if row.verdict == "MISSED":
        value = f"**{value}, {limit_of(row)}**"
    return f"{value}; {number(row.ours)}/{number(row.theirs)}"


def _row(first: str, cells: list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _facts(result: dict[str, Any], rounds: str, *programs: str) -> str:
    """The machine and the run, in a line."""
    facts = result["machine"]
    versions = [str(facts[program]).replace("go", "Go ").replace("openjdk", "OpenJDK") for program in programs]
    python = str(facts["python"]).split(" (")[0]
    what = ", ".join([f"{facts['cores']} cores of {facts['cpu']}", facts["system"], python, *versions])
    load_ = f"load {facts['load'][0]} before, {result['load_after'][0]} after"
    if facts["load"][0] > 1:
        load_ += " (other programs were running: the figures scatter)"
    return f"\n\n{rounds}; {what}; {load_}; commit {result['commit']}, {result['when'][:10]}\n"


def name(body: str) -> str:
    """``updatemetadata-8-500x20`` -> ``UpdateMetadata 8``."""
    api, number_, _ = body.split("-")
    return f"{APIS[api]} {number_}"


def shape_of(body: str) -> str:
    """``updatemetadata-8-1x10000`` -> ``1x10,000``."""
    topics, each = body.split("-")[2].split("x")
    return f"{topics}x{int(each):,}"


def version(row: Line) -> str:
    """The version of a line's body."""
    return row.case.split("-")[1]


def filled(text: str, made: dict[str, str]) -> str:
    """A page with every table in its place; a mark of an unknown table is an error."""
    return MARK.sub(lambda mark: mark[1] + made[mark[2]] + mark[3], text)


def main() -> None:
    made = tables()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
        return
    for title, table in made.items():
        print(f"<!-- figures: {title} -->\n{table}<!-- end of figures -->\n")


if __name__ == "__main__":
    main()
