"""Counts the files that one election passes, and the calls on the deciding thread and the send thread.

A ``ScriptedController`` elects a leader at one broker over plaintext: a LeaderAndIsr and an UpdateMetadata. Modules run
uncompiled here, so that every call is seen; those of the broker's threads are left out.
Run it by ``python tests/channel/request_way.py``.
"""

import sys
import threading
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path

ROOT = str(Path(__file__).parents[2])


def main() -> None:
    sources = FileFinder.path_hook((SourceFileLoader, [".py"]), (ExtensionFileLoader, EXTENSION_SUFFIXES))
    sys.path_hooks.insert(0, sources)
    sys.path_importer_cache.clear()
    sys.path.insert(0, ROOT)
    from channel import EmbeddedCluster, ScriptedController

    calls: list[tuple[str, str]] = []
    counting = False
    decided = ScriptedController._run.__code__  # it sends what follows from a decision

    def count(frame, event, _):
        nonlocal counting
        counting = counting or frame.f_code is decided
        if counting and event == "call" and frame.f_code.co_filename.startswith(ROOT):
            calls.append((threading.current_thread().name, frame.f_code.co_filename))

    with EmbeddedCluster(1) as cluster:
        threading.setprofile(count)
        with ScriptedController(cluster) as controller:
            controller.create_topic("orders", partitions=1, replication_factor=1)
            controller.elect("orders", 0)
            controller.wait_all()
            sys.setprofile(count)
            controller.elect("orders", 0)
            sys.setprofile(None)
            controller.wait_all()
            counting = False
    on_send_thread = sum("send-thread" in thread for thread, _ in calls)
    on_deciding_thread = sum(thread == "MainThread" for thread, _ in calls)
    print(len({file for _, file in calls}), on_deciding_thread, on_send_thread)


if __name__ == "__main__":
    main()
