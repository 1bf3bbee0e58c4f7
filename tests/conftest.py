"""Provides the fixtures that all tests share: both codecs, one after the other or side by side, and the golden data."""

import atexit
import gc
import gzip
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lock_checks
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

from kproto.codec import Codec, Implementation, get_codec

DATA = Path(__file__).parent / "data"

_root = Path(__file__).parent.parent
for _layout in (*_root.glob("channel/**/*.p[xy][dx]"), *_root.glob("kproto/*/*.pxd")):  # .pxd and .pyx
    for _compiled in _layout.parent.glob(f"{_layout.stem}.*.so"):
        for _source in filter(Path.exists, (_layout, _layout.with_suffix(".py"))):
            if _source.stat().st_mtime > _compiled.stat().st_mtime:
                pytest.exit(f"{_source} has changed since it was compiled; run tools/setup test", 4)

lock_checks.check_order()  # a test that takes the channel's locks out of their order fails

# A run in the background of a script ignores Ctrl-C, and so would the commands that tests start and end with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

on_any_machine = settings(  # of Hypothesis's own: where CI is set, what is loaded now draws by no seed
    settings.get_profile("default"), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", on_any_machine, derandomize=True, max_examples=60, print_blob=True)
settings.register_profile("dev", on_any_machine, max_examples=60)
settings.register_profile("quick", on_any_machine, max_examples=5)
settings.register_profile("explore", settings.get_profile("dev"))  # fresh draws where others are fixed: see fixed_draws
settings.register_profile("soak", on_any_machine, max_examples=5000)
settings.register_profile(
    "mutations", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate]
)  # no shrinking
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
if settings.get_current_profile_name() == "quick":  # to look for constants in all modules takes each worker two seconds
    providers.is_local_module_file = lambda path: False


FEW = ("ibp-0.8.2-a", "ibp-3.9-a-lossy", "ibp-3.9-migration-a", "kafka-2.8.2")
"""Of the recorded runs those that every test over such runs takes, or the first of its own if it has none of them; the
others are in the tier ``slow``."""
RECORDED = {path.name.removesuffix(".pcap.gz") for path in (DATA / "captures").glob("*.pcap.gz")}
RECORDED |= {path.name.removesuffix(".tar.xz") for path in (DATA / "state_logs").glob("*.tar.xz")}


def few(cases: Iterable[Any], number: int = 1) -> list[Any]:
    """Of the cases of a test that go one way, have every run take some, evenly spread; the others are ``slow``."""
    cases = list(cases)
    taken = range(0, len(cases), -(-len(cases) // number))
    slow = [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
    return [case if at in taken else slow[at] for at, case in enumerate(cases)]


def pytest_configure(config: pytest.Config) -> None:
    """Have workers begin at different files: what one has rewritten and compiled, the others find in the cache."""
    config.add_cleanup(gc.unfreeze)  # when pytest has looked for garbage: libraries complain of what is left at the end
    worker = getattr(config, "workerinput", None)
    if worker:
        atexit.register(os._exit, 0)  # at the end of all: to free half a million objects takes two seconds
    if worker and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        left_out = tuple(str(config.rootpath / each) for each in config.getoption("ignore") or ())
        files = [file for file in map(str, sorted(DATA.parent.rglob("test_*.py"))) if not file.startswith(left_out)]
        begin = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        config.args = files[begin:] + files[:begin]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep all modules and tests, half a million objects, out of each later collection of garbage."""
    gc.disable()
    yield
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest groups tests by their fixtures
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of all but a few recorded runs into the tier ``slow``: one test, many runs."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        items.sort(key=lambda item: item.path)  # whichever file a worker began with
    runs = {item: run for item in items if (run := _recorded(item)) is not None}
    taken = {_test(item) for item, run in runs.items() if run in FEW}
    for item, run in runs.items():
        if run not in FEW:
            if _test(item) in taken:
                item.add_marker(pytest.mark.slow)
            taken.add(_test(item))


def _recorded(item: pytest.Item) -> str | None:
    """The recorded run that is among the parameters of a test."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec is not None else ():
        for each in value if isinstance(value, tuple) else (value,):
            name = each.name.removesuffix(".pcap.gz") if isinstance(each, Path) else each
            if isinstance(name, str) and name in RECORDED:
                return name
    return None


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@dataclass(frozen=True)
class CodecImplementation:
    """One codec with the tag that test ids show."""

    tag: Implementation

    @property
    def module(self) -> Codec:
        return get_codec(self.tag)

    def __str__(self) -> str:
        return self.tag


IMPLEMENTATIONS = [CodecImplementation("cython"), CodecImplementation("construct")]


@pytest.fixture(params=IMPLEMENTATIONS, ids=str, scope="session")
def codec(request: pytest.FixtureRequest) -> Codec:
    """Run the test with each codec."""
    return request.param.module


@pytest.fixture(scope="session")
def both() -> tuple[Codec, Codec]:
    """Give the extension and the reference, to be compared."""
    return get_codec("cython"), get_codec("construct")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a test selectable by its conformance rows: ``pytest -k CCM-07`` runs them."""
    for marker in item.iter_markers("conformance"):
        item.extra_keyword_matches.update(marker.args)


_read: dict[str, Mapping[str, Any]] = {}


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let questions to one capture share its tables, whichever command asks them; no test changes its files."""
    import kproto.tables

    whole = kproto.tables.read

    def read(*sources: Any, **options: Any) -> dict[str, Any]:
        asked = repr((sources, options))
        if asked not in _read:
            if len(_read) > 9:
                del _read[next(iter(_read))]
            _read[asked] = whole(*sources, **options)
        return dict(_read[asked])

    monkeypatch.setattr(kproto.tables, "read", read)


def path(name: str) -> str:
    """The path of a real capture, by its name."""
    return str(DATA / "captures" / f"{name}.pcap.gz")


def read_jsonl(path: Path) -> Iterator[dict[str, Any]]:
    """Read the objects of a compressed file of JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
