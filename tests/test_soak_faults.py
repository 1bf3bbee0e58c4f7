"""The faults of a soak that it makes itself: packets out of order, and full disks, each in namespaces of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from network_namespace import NetworkNamespace
from network_peers import until
from soak import checks, faults, saboteur
from soak.disks import Hole
from soak.packets import Detour
from soak.processes import Program, Soak
from soak.run import EXPLAINED

from channel.threads import LoopThread, StoppableThread

_ROOT = Path(__file__).parent.parent
_NO_DETOUR = NetworkNamespace.missing() or Detour.missing()

DETOUR = """
import os, socket, threading, json
from network_namespace import NetworkNamespace
from soak.packets import Packets

with NetworkNamespace():
    packets = Packets(seed=5)
    sent = os.urandom(100_000)
    with socket.create_server(("127.0.0.1", 19000)) as server, socket.create_connection(("127.0.0.1", 19000)) as client:
        with server.accept()[0] as peer:
            def pass_through():
                before = packets.detour.counts["passed"], packets.detour.out_of_order()
                sender = threading.Thread(target=client.sendall, args=(sent,))
                sender.start()
                peer.settimeout(60)
                found = b""
                while len(found) < len(sent):
                    found += peer.recv(65_536)
                sender.join()
                after = packets.detour.counts["passed"], packets.detour.out_of_order()
                return [found == sent, after[0] - before[0], after[1] - before[1]]

            straight = pass_through()
            with packets.detoured([19000]):
                detour = pass_through()
            print(json.dumps([straight, detour, pass_through(), list(packets.wrong())]))
"""

DISK = """
import json, sys, threading, time
from pathlib import Path
from types import SimpleNamespace
from channel.network.recorder import PcapngRecorder
from soak.disks import Disks

folder = Path(sys.argv[1])
recordings = folder / "recordings"
recordings.mkdir()
disks = Disks(folder / "disks", recordings)
disk, over = disks.of("tap-0"), threading.Event()
disks.start()
first, second = disk / "tap-0-00001.pcapng.part", disk / "tap-0-00002.pcapng.part"

def record(recorder):
    while not over.wait(0.01):
        recorder.record("sent", ("127.0.0.1", 1), ("127.0.0.1", 2), 1, [bytes(3_000)])
        if recorder.error is not None:
            second.unlink(missing_ok=True)  # a tap removes a part that the disk had no room for, too
            recorder.switch(second)

if disks.missing is None:
    with PcapngRecorder(first, keep_secrets=True) as recorder:
        tap = threading.Thread(target=record, args=(recorder,))
        tap.start()
        with disks.full(SimpleNamespace(name="tap-0")):
            while recorder.lost <= 5:
                time.sleep(0.01)
        over.set()
        tap.join()
    for part in first, second:
        part.rename(part.with_suffix(""))
disks.end()
disks.close()
names = sorted(path.name for path in recordings.iterdir())
print(json.dumps([disks.missing, disks.holes, recorder.lost, names, [path.name for path in disk.iterdir()]]))
"""


def told(program, *arguments):
    """What a program that makes namespaces prints; they end with its process."""
    paths = os.pathsep.join(str(_ROOT / folder) for folder in ("tests", "benches"))
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": paths}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(_NO_DETOUR is not None, reason=str(_NO_DETOUR))
def test_packets_in_the_detour_come_out_of_order_and_no_byte_is_lost():
    straight, detour, again, wrong = told(DETOUR)
    assert straight == [True, 0, 0]
    assert again[:2] == [True, 0]
    is_whole, passed, late = detour
    assert is_whole
    assert passed > 400  # segments are small
    assert late > 10
    assert wrong == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a mount namespace")
def test_a_full_disk_is_a_hole_until_the_tap_records_again(tmp_path):
    missing, holes, lost, recordings, left = told(DISK, tmp_path)
    if missing is not None:
        pytest.skip(missing)
    ((tap, began, ended),) = holes
    assert tap == "tap-0"
    assert began < ended
    assert lost > 5
    assert recordings == ["tap-0-00001.pcapng", "tap-0-00002.pcapng"]
    assert left == []  # nothing of it is outside the namespace
    assert not Path(tmp_path / "disks" / "tap-0" / "ballast").exists()


# ---- what may be missing then ----------------------------------------------------------------------------------------


@pytest.fixture
def soak(tmp_path):
    """Twenty brokers behind two taps; the disk of the second was full from 100 s to 110 s."""
    taps = [SimpleNamespace(name=f"tap-{n}", log=tmp_path / f"tap-{n}.log") for n in range(2)]
    for tap in taps:
        tap.log.write_text("")
    made = Soak.__new__(Soak)
    made.taps, made.groups = taps, []
    made.disks = SimpleNamespace(holes=[Hole("tap-1", 100.0, 110.0)])
    return made


COLUMNS = {name: pa.array([], pa.int64()) for name in checks._COLUMNS}
NOTHING = {"requests": pa.table(COLUMNS), "bad_inputs": pa.table({})}


@pytest.mark.parametrize(
    ("broker_id", "time", "is_wrong"),
    [(12, 105.0, False), (12, 111.0, False), (12, 97.0, True), (12, 113.0, True), (2, 105.0, True)],
)
def test_only_what_passed_while_the_disk_was_full_may_be_missing(soak, broker_id, time, is_wrong):
    request = {"controllerId": 1, "controllerEpoch": 1, "brokerEpoch": 1}
    line = {"broker_id": broker_id, "api_key": 6, "correlation_id": 1, "time": time, "request": request}
    journal = SimpleNamespace(of_broker={broker_id: [line | {"response": {"errorCode": 0}}]})
    assert bool(list(checks.missing_frames(soak, journal, NOTHING))) == is_wrong


TOLD = "kproto: the recording is incomplete, 1,234 pieces could not be written; make room and start again\n"


@pytest.mark.parametrize(
    ("tap", "said", "code", "is_wrong"),
    [
        (1, TOLD, 2, False), (1, "", 0, False), (1, TOLD, 0, True), (1, "", 2, True), (0, TOLD, 2, True),
        (0, "", 1, True),
    ],
)  # fmt: skip
def test_a_tap_tells_of_what_its_full_disk_could_not_hold(soak, tap, said, code, is_wrong):
    soak.taps[tap].log.write_text(said)
    assert checks.lost_pieces(soak.taps[tap]) == (1234 if said else 0)
    codes = Counter({f"tap-{tap}": code})
    assert bool(list(checks.miscounted(soak, codes))) == is_wrong


# ---- faults within a controller's process ----------------------------------------------------------------------------


def test_a_thread_is_killed_and_no_thread_is_given_for_a_while():
    working = LoopThread("a thread of a soak", lambda: time.sleep(0.001))
    working.start()
    names = sorted(each.name for each in threading.enumerate() if isinstance(each, StoppableThread))
    assert saboteur.kill(names.index(working.name)) == working.name
    working.join(60)
    assert isinstance(working.error, saboteur.Killed)
    given = threading._start_new_thread
    before = signal.getsignal(signal.SIGALRM)
    try:
        assert saboteur.refuse(60) == "60.0 s"
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        assert 0 < signal.setitimer(signal.ITIMER_REAL, 0.01)[0] <= 60  # the rest of the time passes at once
        until(lambda: threading._start_new_thread is given)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_controller_takes_orders(tmp_path):
    controller = Program(
        "controller-7", tmp_path, ["controller", "--zookeeper", "127.0.0.1:1", "--id", "7"], takes_orders=True
    )
    controller.start()
    try:
        assert controller.order(refuse_s=0.01) == "0.0 s"
        assert controller.order(refuse_s=2) == "2.0 s"
    finally:
        controller.kill()


def test_each_fault_is_drawn_by_the_seed_before_any_comes_twice():
    drawn = [fault.name for fault in faults.draw(5, 3600)]
    assert drawn == [fault.name for fault in faults.draw(5, 3600)]
    assert set(drawn[: len(faults.FAULTS)]) == set(faults.FAULTS) >= faults.CONTROLLER_ENDS


def test_a_flood_of_lines_is_judged_by_those_that_are_there(tmp_path: Path) -> None:
    log = tmp_path / "tap.log"
    refused = "the connection of 127.0.0.1:5 to 127.0.0.1:6 is ended: [Errno 111] Connection refused"
    lines = [f"{refused}; more lines like this are left out for a while", "271 lines like the next were left out"]
    program = SimpleNamespace(name="tap-4", log=log)
    log.write_text("\n".join([*lines, refused]))
    assert list(checks.log_lines(program, EXPLAINED)) == []  # type: ignore[arg-type]
    log.write_text("\n".join([*lines, "what nobody expects"]))
    assert list(checks.log_lines(program, EXPLAINED)) == ["tap-4: what nobody expects"]  # type: ignore[arg-type]
