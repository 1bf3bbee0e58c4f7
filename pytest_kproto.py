"""pytest fixtures: a cluster of embedded brokers, and a controller that the test directs.

pytest finds them once kproto is installed. What passed between controller, brokers and clients of a failing test is
kept below ``--kproto-keep``: the recording, the doctor's findings and the report.

    @pytest.mark.kproto_cluster(100, records=True)
    def test_the_client_follows_the_leader(kproto_cluster, scripted_controller):
        scripted_controller.create_topic("orders", partitions=3, replication_factor=3)
        scripted_controller.wait_all()

The package ``channel`` is imported when a test uses a fixture, and not before: a project may have a ``channel`` of its
own as long as it uses no fixture.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from channel.broker.cluster import EmbeddedCluster
    from channel.network.recorder import PcapngRecorder
    from channel.rehearsal.scripted_controller import ScriptedController

_BROKERS: Final = 3
_FAILED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kproto-keep``."""
    parser.getgroup("kproto").addoption(
        "--kproto-keep",
        metavar="DIR",
        default="kproto-failures",
        help="Keep the recording, findings and report of each failing test below DIR (default: %(default)s).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers", "kproto_cluster(brokers=3, ...): the arguments of EmbeddedCluster for the fixture kproto_cluster"
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that has passed although a hook of its brokers raised something, such as a failed assertion."""
    result = yield
    cluster: Any = pyfuncitem.funcargs.get("kproto_cluster")
    if cluster is not None and cluster.failures:
        raise cluster.failures[0]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed until its fixtures end."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture
def kproto_recorder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PcapngRecorder]:
    """Records what brokers of ``kproto_cluster`` receive and send; kept if the test fails."""
    path = tmp_path_factory.mktemp("kproto") / "recording.pcapng"
    with _class_of("channel.network.recorder", "PcapngRecorder")(path) as recorder:
        yield recorder
    item = request.node
    if item.stash.get(_FAILED, False):
        worker = getattr(request.config, "workerinput", {}).get("workerid")  # of pytest-xdist
        folder = Path(request.config.getoption("--kproto-keep")) / _folder_name(item.nodeid, worker)
        item.add_report_section("teardown", "kproto", _keep(path, folder))
    path.unlink(missing_ok=True)


@pytest.fixture
def kproto_cluster(request: pytest.FixtureRequest, kproto_recorder: PcapngRecorder) -> Iterator[EmbeddedCluster]:
    """Three embedded brokers on loopback; the marker's arguments are those of ``EmbeddedCluster``."""
    marker = request.node.get_closest_marker("kproto_cluster")
    positional, named = (marker.args, marker.kwargs) if marker else ((), {})
    if not positional:
        named = {"brokers": _BROKERS, **named}
    make = _class_of("channel.broker.cluster", "EmbeddedCluster")
    named = {"recorder": kproto_recorder, **named}
    try:
        inspect.signature(make).bind(*positional, **named)
        made = make(*positional, **named)
    except (TypeError, ValueError) as e:
        pytest.fail(f"the arguments of the marker kproto_cluster, which are EmbeddedCluster's: {e}", pytrace=False)
    with made as cluster:
        yield cluster
    if cluster.failures and not request.node.stash.get(_FAILED, False):
        raise cluster.failures[0]  # after the test's end


@pytest.fixture
def scripted_controller(
    request: pytest.FixtureRequest, kproto_cluster: EmbeddedCluster
) -> Iterator[ScriptedController]:
    """The controller of ``kproto_cluster``, as its first broker; the test makes its decisions."""
    make = _class_of("channel.rehearsal.scripted_controller", "ScriptedController")
    first = next(iter(kproto_cluster))
    with make(kproto_cluster, controller_id=first.id) as controller:
        yield controller
        item, refused = request.node, controller.refused
        if refused and item.stash.get(_FAILED, False):
            lines = [f"{len(refused)} requests of the controller were refused, among them:", *map(str, refused[:20])]
            item.add_report_section("teardown", "kproto", "\n".join(lines))


def _class_of(module: str, name: str) -> Any:
    """Import a class of ``channel``; where another ``channel`` hides kproto's, the test fails with a line."""
    try:
        return getattr(import_module(module), name)
    except ImportError:
        found = sys.modules.get("channel")
        where = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ())), None)
        if where is None or Path(where).parent == Path(__file__).parent / "channel":
            raise
    pytest.fail(
        f"{where} hides the package channel of kproto, which kproto's fixtures import: rename it, or run pytest "
        "from another folder with --import-mode=importlib",
        pytrace=False,
    )


def _folder_name(nodeid: str, worker: str | None = None) -> str:
    """Name the folder of a test: another for each parameter and for each worker of pytest-xdist.

    >>> _folder_name("tests/test_a.py::test_b")
    'tests-test_a.py-test_b'
    >>> _folder_name("test_a.py::test_b[x/y]"), _folder_name("test_a.py::test_b[x-y]")
    ('test_a.py-test_b-x-y-6a758f75', 'test_a.py-test_b-x-y-0bd3085e')
    """
    name = re.sub(r"[^\w.]+", "-", nodeid).strip("-")[:150]
    if re.search(r"[^\w./:]", nodeid) or len(nodeid) > 150:
        name += f"-{hashlib.blake2s(nodeid.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return f"{name}-{worker}" if worker else name


def _keep(recording: Path, folder: Path) -> str:
    """Move a recording to ``folder``, write findings and report beside it; returns what to tell the developer."""
    import shutil

    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / recording.name
    shutil.move(recording, kept)
    lines = [f"recording: {kept}", f"  kproto inspect {kept} --changes"]
    try:
        from kproto.report import write_report
        from kproto.tables import read
        from kproto.verdicts.facts import Facts
        from kproto.verdicts.rules import findings
    except ImportError as e:
        return "\n".join(
            [*lines, f"no findings, no report: {e.name} is not installed; try: pip install 'kproto[report]'"]
        )
    try:
        tables = read(kept)
        if not tables["requests"].num_rows:
            return "\n".join([*lines, "no control request was recorded"])
        found = [f"{f.severity} {f.rule}: {f.text}" for f in findings(Facts([tables]))]
        (folder / "findings.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        write_report(tables, folder / "report.html")
    except Exception as e:  # noqa: BLE001  (the test has failed already; a second error would stand before its own)
        return "\n".join([*lines, f"no findings, no report: {type(e).__name__}: {e}"])
    return "\n".join([*lines, f"report: {folder / 'report.html'}", *found])
