"""The demo's day on a real ZooKeeper: the recording of two elected controllers holds what their journal says."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from channel.network.recorder import PcapngRecorder
from channel.rehearsal.zookeeper_scenario import ZooKeeperScenario
from channel.zookeeper.session import ZooKeeperSession
from kproto import tables
from kproto.cli.demo import differences

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]


@pytest.mark.parametrize("seed", [1, 2])
def test_tables_of_the_recording_agree_with_the_journal(seed: int, zookeeper: str, tmp_path: Path) -> None:
    steps: list[str] = []
    with PcapngRecorder(tmp_path / "recording.pcapng") as recorder:
        scenario = ZooKeeperScenario(zookeeper, 3, seed=seed, recorder=recorder, on_step=steps.append)
        scenario.run()
    found = tables.read(tmp_path / "recording.pcapng")
    for name in "requests", "partition_states", "partition_errors":
        (tmp_path / name).mkdir()
        pq.write_table(found[name], tmp_path / name / "part.parquet")
    assert differences(tmp_path, scenario.journal) == []
    entries = scenario.journal.entries
    assert {(e.controller_id, e.controller_epoch) for e in entries} == {(1000, 1), (1001, 2)}
    assert [e.error_code for e in entries if e.error_code] == [11]  # the deposed controller's
    scenario.journal.wait(timeout_s=0)
    told = "\n".join(steps)
    for step in "leader", "killed", "back with epoch", "reassigned", "leads in epoch 2", "fenced", "deleted":
        assert step in told
    with ZooKeeperSession(zookeeper) as session:
        assert session.children("/") == []
