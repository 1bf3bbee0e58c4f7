"""The pytest plugin, by pytest's own harness: fixtures, the marker, and what a failing test keeps."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kproto.capture import exchanges

pytest_plugins = ["pytester"]

PASSING = """
    import pytest

    def test_three_brokers_follow(kproto_cluster, scripted_controller):
        scripted_controller.create_topic("orders", partitions=3, replication_factor=3)
        scripted_controller.wait_all()
        assert kproto_cluster[2].broker.metadata.partition_info("orders", 0).leader == 0

    @pytest.mark.kproto_cluster(brokers=[7, 8])
    def test_the_marker_names_brokers(kproto_cluster):
        assert [member.id for member in kproto_cluster] == [7, 8]
"""

FAILING = """
    def test_nobody_leads(scripted_controller, kproto_cluster):
        scripted_controller.create_topic("orders", assignment=[[0]])
        scripted_controller.wait_all()
        kproto_cluster.kill(0)
        scripted_controller.fail_over(0)
        scripted_controller.wait_all()
        assert False, "the test fails"
"""


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    """Run one file of tests in a process of its own, as a user of the installed package does."""
    pytester.makepyfile(text)
    return pytester.run(
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments, timeout=120
    )


def test_fixtures_give_brokers_and_a_controller_and_keep_nothing_of_a_passing_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, PASSING, "--strict-markers")
    result.assert_outcomes(passed=2)
    assert not (pytester.path / "kproto-failures").exists()


def test_a_failing_test_keeps_its_recording_findings_and_report(pytester: pytest.Pytester) -> None:
    result = run(pytester, FAILING, "--kproto-keep", "kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured kproto teardown*", "recording: kept/*"])
    (folder,) = (pytester.path / "kept").iterdir()
    assert re.fullmatch(r"[\w.-]+test_nobody_leads", folder.name)
    topics = {
        state.topic_name
        for exchange in exchanges(folder / "recording.pcapng")
        if exchange.api_key == 4
        for state in exchange.request_message.topic_states
    }
    assert topics == {"orders"}
    assert "KP010: orders-0 has no leader" in (folder / "findings.txt").read_text()
    assert "uPlot" in (folder / "report.html").read_text()


def test_help_names_the_option_and_the_marker(pytester: pytest.Pytester) -> None:
    assert "--kproto-keep" in run(pytester, "", "--help").stdout.str()
    assert "kproto_cluster(brokers=3" in run(pytester, "", "--markers").stdout.str()


def test_the_plugin_loads_nothing_of_the_channel_before_a_test_asks_for_it(pytester: pytest.Pytester) -> None:
    text = """
        import sys

        def test_nothing_is_loaded():
            assert "channel.broker.cluster" not in sys.modules
            assert "kproto._codec" not in sys.modules
    """
    run(pytester, text).assert_outcomes(passed=1)


def test_the_documented_example_runs(pytester: pytest.Pytester) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial-pytest.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    run(pytester, example).assert_outcomes(passed=example.count("def test_"))
