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
    from collections.abc import Callable, Iterable

PAGE = Path(__file__).parents[1] / "docs" / "figures.md"
MARK = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
RESULTS_OF = {
    "codec": ("codec",),
    "codec-versions": ("codec",),
    "codec-rest": ("codec",),
    "doors": ("doors",),
    "channel": ("channel",),
    "controller": ("controller",),
    "controller-size": tuple(f"controller-{group}" for group in ("large", "reassign", "delete", "create", "thousand")),
    "secured": ("secured",),
    "tap": ("tap",),
    "tshark": ("tshark",),
    "pipeline": tuple(
        f"pipeline-{group}" for group in ("small", "speed", "sharing", "workers", "growth", "skew", "many")
    ),
    "small-recordings": ("small_recordings",),
    "month": ("month",),
    "doctor": ("doctor",),
    "metadata": ("metadata",),
    "live": ("live",),
    "thousand": ("thousand",),
}
"""The tables of the page, in its order, and the result files that each is made of."""
FACTS = {"codec": ("java", "go"), "channel": ("java",), "controller": ("java",), "pipeline": ("java",)}
"""The versions that stand below a table, by the first word of the result file's name."""
APIS = {"leaderandisr": "LeaderAndIsr", "stopreplica": "StopReplica", "updatemetadata": "UpdateMetadata"}


def tables(results: Path = RESULTS) -> dict[str, str]:
    """Every table by its name, as Markdown."""
    made = {}
    for table, names in RESULTS_OF.items():
        found = [load(results / f"{name}.json") for name in names if (results / f"{name}.json").exists()]
        lines = [row for _result, rows in found for row in rows]
        shown = _by_shape if table == "codec" else _by_version if table == "codec-versions" else _plain
        if table == "codec-rest":
            newest = {id(row) for api in NEWEST for row in _newest(lines, api)}
            lines = [row for row in lines if row.group != "versions" and id(row) not in newest]
        texts = ["\n".join(shown(lines))] if lines else []
        texts += [_facts(result, *FACTS.get(result["command"].split("-")[0], ())) for result, _lines in found]
        missing = [name for name in names if not (results / f"{name}.json").exists()]
        texts += [f"Not measured yet: {', '.join(missing)}."] if missing else []
        made[table] = "\n\n".join(texts) + "\n"
    return made


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
        shown = f"{ratio(row.value)} {_spread(row, ratio)}".strip() if row.peer else _spread(row, number)
        if row.value is None:
            ours = theirs = shown = ""
        limit = limit_of(row) + (f" **{row.verdict.lower()}**" if row.verdict in ("MISSED", "NOT MEASURED") else "")
        out.append(_row(", ".join(filter(None, (row.what, case))), [ours, theirs, shown, limit.strip()]))
    return out


def _spread(row: Line, text: Callable[[float | None], str]) -> str:
    """The least and the largest of several rounds; "" for a single one."""
    return f"({text(row.low)}-{text(row.high)})" if row.rounds > 1 else ""


def _cell(row: Line) -> str:
    if row.value is None:
        return "not measured"
    value = f"{ratio(row.value)} {_spread(row, ratio)}".strip()
    if row.verdict == "MISSED":
        value = f"**{value}, {limit_of(row)}**"
    return f"{value}; {number(row.ours)}/{number(row.theirs)}"


def _row(first: str, cells: list[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


def _facts(result: dict[str, Any], *programs: str) -> str:
    """The command, the run and the machine, in a line."""
    if "changed" not in result:
        return f"Measured before results kept their options; commit {result['commit']}, {result['when'][:10]}"
    facts, settings = result["machine"], result.get("settings") or {}
    group = result["command"].partition("-")[2]
    command = f"python benches/{result['program']}" + (f" --only {group}" if group else "")
    rounds = len(result["rounds"])
    run = [f"`{command}`", f"{rounds} round{'s'[: rounds != 1]} in {result['seconds']:,} s"]
    run += [f"{what} {settings[what]}" for what in ("tshark", "heap") if what in settings]
    versions = [str(facts[program]).replace("go", "Go ").replace("openjdk", "OpenJDK") for program in programs]
    python = str(facts["python"]).split(" (")[0]
    what = ", ".join([f"{facts['cores']} cores of {facts['cpu']}", facts["system"], python, *versions])
    if (facts["busy_cores"] or 0) > 0.2:
        what += f"; other programs kept {facts['busy_cores']:g} cores busy: the figures scatter"
    if result["changed"]:
        what += f"; other options than the defaults: {result['changed']}"
    return f"{'; '.join(run)}; {what}; commit {result['commit']}, {result['when'][:10]}"


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
    for name in (name for names in RESULTS_OF.values() for name in names if not (RESULTS / f"{name}.json").exists()):
        print(f"not measured yet: {name}", file=sys.stderr)
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
        return
    for title, table in made.items():
        print(f"<!-- figures: {title} -->\n{table}<!-- end of figures -->\n")


if __name__ == "__main__":
    main()
