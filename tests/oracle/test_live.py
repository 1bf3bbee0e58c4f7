"""Thousands of fresh questions to Kafka's own classes: random messages, bent ones, one version's JSON as another's.

``KPROTO_ORACLE_QUESTIONS`` says how many (the default is for a quick look; CI asks 200,000), ``KPROTO_ORACLE_SEED``
brings a run back. Work goes to two processes, as the reference is slow.
"""

import json
import multiprocessing
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any

import live
import pytest
from answers import short

from kproto.api import ApiKey

pytestmark = pytest.mark.timeout(1200)  # 200,000 questions on a busy machine

# Parts of all questions: the three control APIs, which both codecs answer, take half.
SHARES = {
    "4": 17,
    "5": 12,
    "6": 17,
    "headers": 4,
    "3": 12,
    "7": 3,
    "17": 2,
    "18": 6,
    "19": 6,
    "20": 5,
    "36": 3,
    "37": 4,
}
SHARES |= {"56": 4, "58": 1, "62": 4, "63": 1, "67": 1}
HEADER_KINDS = 5
AT_ONCE = 1500
"""Mutants of a version and kind from one seed; more and the small messages run out of new ones."""


def groups(api: str) -> int:
    """How many (version, kind) an API has: the generator counts for each."""
    return HEADER_KINDS if api == "headers" else 2 * (ApiKey(int(api)).info.max_version + 1)


@pytest.fixture(scope="module")
def workers() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def ask(program: Path, mode: str, api: str, count: int, folder: Path, seed: int = live.SEED) -> list[str]:
    """Lines of messages with Java's verdicts, the same number for each version and kind."""
    out = folder / f"{mode}-{api}.jsonl"
    command = [program, mode, "--apis", api, "--seed", str(seed), "--count", str(count), "--out", out]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    lines = out.read_text("utf-8").split("\n")[:-1]  # strings may hold what splitlines takes for line ends
    out.unlink()
    return lines


def hold(workers: ProcessPoolExecutor, lines: list[str]) -> list[str]:
    """Every line to every codec that speaks its API; what differs, in words."""
    wrong: list[str] = []
    for tally, differences in workers.map(live.compare, [lines[i : i + 250] for i in range(0, len(lines), 250)]):
        live.REPORT.add(tally)
        wrong += differences
    return wrong


def told(wrong: list[str]) -> str:
    more = f"\n... and {len(wrong) - 20} more" if len(wrong) > 20 else ""
    return f"seed {live.SEED}:\n" + "\n".join(wrong[:20]) + more


@pytest.mark.parametrize("api", SHARES, ids=lambda api: api if api == "headers" else ApiKey(int(api)).info.name)
def test_fresh_messages(api: str, workers: ProcessPoolExecutor, oracle_program: Path, tmp_path: Path) -> None:
    """Verdict, bytes used, value, bytes written again; for whole messages also the bytes of their JSON form."""
    each = live.questions() * SHARES[api] // 100 // groups(api) + 1
    wrong = hold(workers, ask(oracle_program, "generate", api, max(12, each // 8), tmp_path))
    rounds = ceil(each / AT_ONCE)
    for number in range(rounds):
        wrong += hold(workers, ask(oracle_program, "malform", api, ceil(each / rounds), tmp_path, live.SEED + number))
    assert not wrong, told(wrong)


def check_written(
    api: ApiKey, asked: list[dict[str, Any]], answers: list[dict[str, Any]], noted: Callable[[bool], str]
) -> None:
    """Every codec writes what was asked or refuses it, as Java does; counted by what ``noted`` calls it."""
    wrong = []
    for question, answer in zip(asked, answers, strict=True):
        kind, version, form = question["kind"], question["version"], question["json"]
        of = question.get("json_version", version)
        expected = answer["hex"] if answer["ok"] else None
        live.REPORT.asked[int(api), version, kind] += 1
        live.REPORT.other[noted(answer["ok"])] += 1
        for name, got in live.written_as(api, kind, form, of, version):
            live.REPORT.answered[name] += 1
            if got != expected:
                live.REPORT.different += 1
                found = f"got {short(got or 'refused')}, expected {short(expected or answer['error'])}"
                wrong.append(f"{name} {api} {kind} v{of} as v{version} {short(form, 1500)}: {found}")
    assert not wrong, told(wrong)


VERSIONED = [key for key in map(ApiKey, (int(api) for api in SHARES if api != "headers")) if key.info.max_version > 0]


@pytest.mark.parametrize("api", VERSIONED, ids=lambda key: key.info.name)
def test_one_version_written_as_another(api: ApiKey, oracle: Any, oracle_program: Path, tmp_path: Path) -> None:
    """What a version lacks is dropped or refused as Java does: every pair of versions."""
    each = max(4, live.questions() // 8000)
    made = [json.loads(line) for line in ask(oracle_program, "generate", str(int(api)), each, tmp_path)]
    asked = [
        {key: m[key] for key in ("api", "kind", "json")}
        | {"op": "encode", "json_version": m["version"], "version": version}
        for m in made
        if len(m["hex"]) < 4000
        for version in range(api.info.max_version + 1)
        if version != m["version"]
    ]
    check_written(api, asked, oracle.ask(asked), lambda _: "versions written as another")


ODD_VALUES = [
    None, True, False, 0, 1, -1, 127, 128, 200, 256, 257, -129, 32767, 32768, -32769, 2**31 - 1, 2**31, 2**63 - 1,
    2**63, 1.0, 1.5, "", "1", "text", "t" * 32767, "t" * 32768, "ü" * 16384, "a\ud800b",
    "A" * 22, "A" * 22 + "==", "A" * 21, "+" * 22, "/" * 22, "AAECAwQFBgcICQoLDA0ODw", "AAAAAAAAAAAAAAAAAAAAAB", "AA==",
    [], [1], [None], {}, {"a": 1},
]  # fmt: skip


def bent(form: Any, rng: random.Random) -> Any:
    """A copy with one place changed: another value, a key gone, a key more."""
    copy = json.loads(json.dumps(form))
    places = list(walk(copy))
    if not places:
        return copy | {"more": 1}
    holder, key = rng.choice(places)
    match rng.randrange(8):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}More"] = holder[key]
        case _:
            holder[key] = rng.choice(ODD_VALUES)
    return copy


def walk(form: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value that holds another."""
    for key, value in list(form.items() if isinstance(form, dict) else enumerate(form)):
        yield form, key
        if isinstance(value, dict | list):
            yield from walk(value)


@pytest.mark.parametrize("api", [key for key in ApiKey if str(int(key)) in SHARES], ids=lambda key: key.info.name)
def test_bent_json(api: ApiKey, oracle: Any, oracle_program: Path, tmp_path: Path) -> None:
    """Kafka's JSON form with a wrong value, a key too few or too many: taken, refused and written as Java does."""
    rng = random.Random(live.SEED)
    made = [json.loads(line) for line in ask(oracle_program, "generate", str(int(api)), 14, tmp_path)]
    small = [m for m in made if len(m["hex"]) < 2000]
    asked = [
        {"op": "encode", "api": int(api), "kind": m["kind"], "version": m["version"], "json": bent(m["json"], rng)}
        for m in rng.choices(small, k=live.questions() // 100)
    ]
    check_written(api, asked, oracle.ask(asked), lambda ok: f"bent JSON forms {'taken' if ok else 'refused'}")


def test_enough_was_asked() -> None:
    """The number that was ordered, and enough mutants among them that Java takes."""
    if not {-1 if api == "headers" else int(api) for api in SHARES} <= {api for api, _, _ in live.REPORT.asked}:
        pytest.skip("only some of the APIs were chosen for this run")
    assert live.REPORT.asked.total() >= live.questions()
    assert live.REPORT.accepted.total() >= 0.3 * live.REPORT.mutants.total()
    assert live.REPORT.different == 0
