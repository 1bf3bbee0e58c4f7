"""pytest fixtures: a cluster of embedded brokers, and a controller that the test directs.

pytest finds them once kproto is installed. What passed between controller, brokers and clients of a failing test is
kept below ``--kproto-keep``: the recording, the doctor's findings and the report.

    @pytest.mark.kproto_cluster(brokers=100)
    def test_the_client_follows_the_leader(kproto_cluster, scripted_controller):
        scripted_controller.create_topic("orders", partitions=3, replication_factor=3)
        scripted_controller.wait_all()
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
    from channel.network.recorder import PcapngRecorder

    path = tmp_path_factory.mktemp("kproto") / "recording.pcapng"
    with PcapngRecorder(path) as recorder:
        yield recorder
    item = request.node
    if item.stash.get(_FAILED, False):
        name = re.sub(r"[^\w.-]+", "-", item.nodeid).strip("-")
        kept = _keep(path, Path(request.config.getoption("--kproto-keep")) / name)
        item.add_report_section("teardown", "kproto", kept)
    path.unlink(missing_ok=True)


@pytest.fixture
def kproto_cluster(request: pytest.FixtureRequest, kproto_recorder: PcapngRecorder) -> Iterator[EmbeddedCluster]:
    """Three embedded brokers on loopback; the marker's arguments are those of ``EmbeddedCluster``."""
    from channel.broker.cluster import EmbeddedCluster

    marker = request.node.get_closest_marker("kproto_cluster")
    arguments = {"brokers": _BROKERS, **(marker.kwargs if marker else {})}
    with EmbeddedCluster(**arguments, recorder=kproto_recorder) as cluster:
        yield cluster


@pytest.fixture
def scripted_controller(kproto_cluster: EmbeddedCluster) -> Iterator[ScriptedController]:
    """The controller of ``kproto_cluster``; the test makes its decisions."""
    from channel.rehearsal.scripted_controller import ScriptedController

    with ScriptedController(kproto_cluster) as controller:
        yield controller


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
    tables = read(kept)
    if not tables["requests"].num_rows:
        return "\n".join([*lines, "no control request was recorded"])
    found = [f"{f.severity} {f.rule}: {f.text}" for f in findings(Facts([tables]))]
    (folder / "findings.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    write_report(tables, folder / "report.html")
    return "\n".join([*lines, f"report: {folder / 'report.html'}", *found])
