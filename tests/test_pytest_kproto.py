"""The pytest plugin, by pytest's own harness: fixtures, the marker, and what a failing test keeps."""

import re
import sys
from pathlib import Path

import pytest

from kproto.capture import exchanges

pytestmark = pytest.mark.slow
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

    @pytest.mark.kproto_cluster(5)
    def test_the_marker_counts_brokers(kproto_cluster, scripted_controller):
        assert len(list(kproto_cluster)) == 5
        scripted_controller.wait_all()
        assert kproto_cluster[4].broker.metadata.nodes("PLAINTEXT")[1].id == 0
"""

FAILING = """
    def test_nobody_leads(scripted_controller, kproto_cluster):
        scripted_controller.create_topic("orders", assignment=[[0]])
        scripted_controller.wait_all()
        kproto_cluster.kill(0)
        scripted_controller.mark_dead(0)
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
    result.assert_outcomes(passed=3)
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
    page = (Path(__file__).parents[1] / "docs" / "tutorial-pytest.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    run(pytester, example).assert_outcomes(passed=example.count("def test_"))


WHAT_WENT_WRONG = """
    import pytest
    from channel import Interception
    from kproto import ApiKey, ErrorCode

    def test_a_hook_asserts(kproto_cluster, scripted_controller):
        scripted_controller.wait_all()

        def check(context, request):
            assert context.api_key != ApiKey.UPDATE_METADATA, "the controller sent UpdateMetadata"

        kproto_cluster[1].hooks.intercept = check
        scripted_controller.announce(1)
        with pytest.raises(TimeoutError):
            scripted_controller.wait_all(timeout_s=0.2)

    def test_a_broker_refuses(kproto_cluster, scripted_controller):
        kproto_cluster[1].intercept(Interception(error=ErrorCode.KAFKA_STORAGE_ERROR), ApiKey.LEADER_AND_ISR)
        scripted_controller.create_topic("orders", assignment=[[1]])
        scripted_controller.wait_all()

    def test_nothing_was_sent(kproto_cluster):
        assert False, "the test fails"

    @pytest.mark.parametrize("what", ["a/b", "a-b"])
    def test_each_parameter(what, kproto_cluster):
        assert not what
"""


def test_a_wrong_argument_of_the_marker_is_one_line(pytester: pytest.Pytester) -> None:
    wrong = {'"3"': "['3']: a broker's id is", "0": "a cluster of 0 brokers", "3, nope=1": "unexpected keyword *nope"}
    result = run(
        pytester,
        "import pytest\n"
        + "\n".join(
            f"@pytest.mark.kproto_cluster({each})\ndef test_{number}(kproto_cluster): pass"
            for number, each in enumerate(wrong)
        ),
    )
    result.assert_outcomes(errors=3)
    told = "the arguments of the marker kproto_cluster, which are EmbeddedCluster's: "
    result.stdout.fnmatch_lines([f"*{told}*{each.replace('[', '[[]')}*" for each in wrong.values()])
    result.stdout.no_fnmatch_line("*cluster.py:*")


def test_what_went_wrong_is_seen(pytester: pytest.Pytester) -> None:
    """An assertion in a hook, refused requests, a cluster without traffic, parameters that differ in a character."""
    result = run(pytester, WHAT_WENT_WRONG)
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(["E *the controller sent UpdateMetadata"])
    result.stdout.fnmatch_lines(
        ["1 requests of the controller were refused, among them:", "<LeaderAndIsr v7 to broker 1: KAFKA_STORAGE_ERROR>"]
    )
    assert len(list((pytester.path / "kproto-failures").iterdir())) == 5


def test_a_project_with_a_channel_of_its_own_runs_its_tests_and_is_told_what_hides_ours(
    pytester: pytest.Pytester,
) -> None:
    (pytester.path / "channel.py").write_text("OURS = 1\n")
    text = """
        import channel

        def test_its_own():
            assert channel.OURS == 1

        def test_a_fixture(kproto_cluster):
            pass
    """
    result = run(pytester, text)
    result.assert_outcomes(passed=1, errors=1)
    hidden = "channel.py hides the package channel of kproto, which kproto's fixtures import: rename it"
    result.stdout.fnmatch_lines([f"*{hidden}*"])
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()
