"""A worker's report about itself. Sent to the workers by value: kproto need not be installed there."""

from __future__ import annotations


def probe(paths: list[str], directory: str) -> tuple[str, dict[str, str]]:
    """The worker's host, and what is wrong there: kind of fault -> its details.

    Args:
        paths: Files that the worker must see.
        directory: A directory, or its URI, that it must see, and write to.
    """
    import os
    import socket
    import sys

    faults: dict[str, str] = {}
    try:
        import kproto
        from kproto import messages  # noqa: F401  # whether its compiled part loads is asked

        faults["version"] = kproto.__version__
    except ImportError as e:
        faults["kproto"] = f"{e} (Python {sys.version.split()[0]} at {sys.executable})"
    try:
        import pyarrow  # noqa: F401  # likewise
    except ImportError as e:
        faults["pyarrow"] = f"{e} (Python at {sys.executable})"
    for path in paths:
        try:
            if "://" not in path:
                with open(path, "rb"):  # noqa: PTH123  # no module of kproto's is needed here
                    continue
            if "kproto" not in faults and "pyarrow" not in faults:
                from kproto.tables.files import open_file

                open_file(path).close()
        except Exception as e:  # noqa: BLE001  # a file system of pyarrow's may raise anything
            faults["path"] = f"{path}: {e}"
            break
    if "://" not in directory:
        if not os.access(directory, os.W_OK | os.X_OK):
            faults["directory"] = directory
    elif "kproto" not in faults and "pyarrow" not in faults:
        try:
            from kproto.tables.files import explained
            from kproto.tables.places import RemotePath

            with explained(directory):
                trial = RemotePath(directory) / f"kproto-runs/.trial-{socket.gethostname()}-{os.getpid()}"
                trial.mkdir(parents=True)
                (trial / "trial").write_text("")
                (trial / "trial").unlink()
        except Exception as e:  # noqa: BLE001  # likewise
            faults["directory"] = str(e)
    return socket.gethostname(), faults
