"""Imports are quick, load few modules, and report a missing extension. Each runs in an interpreter of its own."""

import json
import shutil
from pathlib import Path

import pytest
from commands import python_prints

import kproto
from kproto import messages

OPTIONAL = {
    "pyspark",
    "pyarrow",
    "numpy",
    "pandas",
    "duckdb",
    "polars",
    "prometheus_client",
    "zstandard",
    "click",
    "rich",
}
ROOT = Path(kproto.__file__).parent.parent
"""Installed or not, the kproto that this run tests."""


def run(program: str, root: Path = ROOT) -> str:
    return python_prints(program, cwd=root)


def loaded_by(program: str) -> set[str]:
    return set(json.loads(run(f"{program}\nimport sys, json; print(json.dumps(sorted(sys.modules)))")))


@pytest.mark.parametrize(
    "statement", ["import kproto", "import kproto.api, kproto.framing", "import kproto.codec, kproto.headers"]
)
def test_the_core_pulls_in_no_optional_package(statement: str) -> None:
    loaded = loaded_by(statement)
    assert not {name.partition(".")[0] for name in loaded} & (OPTIONAL | {"construct"})
    assert "kproto._codec" not in loaded
    assert "kproto.reference" not in loaded


def test_the_channel_says_what_it_needs_where_epoll_is_missing() -> None:
    said = run(
        "import select; del select.epoll\ntry: import channel\nexcept ImportError as e: print(e)\n"
        "import kproto, kproto.capture; print(kproto.encode(kproto.StopReplicaRequest(), 4).hex()[:8])"
    )
    assert said.splitlines() == [
        "channel needs Linux: its connections wait by epoll, which this system does not have; kproto's codec, captures "
        "and tables do without it",
        "00000000",
    ]


def test_the_reference_never_loads_the_extension() -> None:
    loaded = loaded_by(
        "import kproto.reference as r; r.decode_response(6, 0, bytes(2)); r.encode(r.UpdateMetadataRequest(), 8)"
    )
    assert "kproto._codec" not in loaded
    assert not {name.partition(".")[0] for name in loaded} & OPTIONAL


def test_the_extension_never_loads_the_reference() -> None:
    loaded = loaded_by(
        "import kproto; kproto.decode_response(6, 0, bytes(2)); kproto.encode(kproto.UpdateMetadataRequest(), 8)"
    )
    assert "kproto._codec" in loaded
    assert "kproto.reference" not in loaded
    assert "construct" not in loaded


def test_a_controller_loads_the_reference_only_once_somebody_asks_it_something() -> None:
    """Construct costs start-up time and memory, and the three control requests never need it."""
    loaded = loaded_by("import kproto.cli.controller, channel.node.controller_node")
    assert "channel.lead.leadership" in loaded
    assert not {name.partition(".")[0] for name in loaded} & (OPTIONAL - {"click"} | {"construct"})
    assert "kproto.reference" not in loaded


def test_a_controller_is_started_without_the_modules_that_only_installing_needs() -> None:
    loaded = loaded_by("import kproto.cli, kproto.cli.controller, channel.node.controller_node")
    assert not loaded & {"importlib.metadata", "email.message", "zipfile", "rich"}


def test_packets_are_read_without_what_reads_logs_and_without_the_reference() -> None:
    """Who waits for an answer waits for imports: patterns are compiled, and Construct builds its parsers."""
    loaded = loaded_by(
        "import contextlib, io, kproto.cli\nwith contextlib.redirect_stdout(io.StringIO()):\n"
        "  for command in ('doctor', 'summary', 'inspect'):\n"
        "    kproto.cli.main([command, 'tests/data/captures/ibp-3.9-a.pcap.gz'], standalone_mode=False)\n"
    )
    assert {"kproto.verdicts.rules", "kproto.capture.pcap", "kproto.tables.relations"} <= loaded
    assert {name for name in loaded if name.startswith("kproto.logs")} == {"kproto.logs", "kproto.logs.reading"}
    assert not {name.partition(".")[0] for name in loaded} & {"construct", "pyspark", "duckdb", "pandas", "crc32c"}
    assert not loaded & {"kproto.reference", "kproto.capture.log_reader", "importlib.metadata"}


@pytest.mark.parametrize("is_clone", [False, True])
def test_without_the_extension_the_reference_works_and_the_rest_is_loud(is_clone: bool, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kproto", tmp_path / "kproto", ignore=shutil.ignore_patterns("*.so", "*.c"))
    if is_clone:
        (tmp_path / "pyproject.toml").touch()
    told = run(
        """
import kproto
from kproto import messages
from kproto.codec import get_codec
assert get_codec("construct").decode_response(6, 0, bytes(2)).error_code == 0
assert kproto.ApiKey(6).info.name == "UpdateMetadata"
decode = lambda: kproto.decode_response(6, 0, bytes(2))
for ask in (lambda: get_codec("cython"), decode, lambda: kproto.UpdateMetadataRequest):
    try:
        ask()
    except ImportError as e:
        print(e)
    else:
        raise SystemExit("no error")
""",
        tmp_path,
    ).splitlines()
    assert len(told) == 3
    for line in told:
        assert "extension is not built" in line
        assert 'get_codec("construct")' in line
        assert ("install kproto again" in line) is not is_clone
        assert (f"start Python in another directory; to build it here: pip install -e '{tmp_path}'" in line) is is_clone


def test_ctrl_c_while_a_command_starts_meets_little_that_does_not_expect_it() -> None:
    """What is loaded before ``main`` can answer Ctrl-C: its two modules, and none of Python's that take a while."""
    loaded = json.loads(
        run(
            "import sys, json; before = set(sys.modules)\nimport kproto.__main__\n"
            "print(json.dumps(sorted(set(sys.modules) - before)))"
        )
    )
    assert {"kproto", "kproto.__main__"} <= set(loaded) <= {"kproto", "kproto.__main__", "__future__"}


@pytest.mark.parametrize("command", ["inspect", "doctor"])
def test_a_capture_of_zookeepers_mode_loads_nothing_that_reads_krafts_log(command: str) -> None:
    arguments = ["kproto", command, str(ROOT / "tests/data/captures/ibp-2.6-a.pcap.gz")]
    loaded = json.loads(
        run(
            "import sys, json, io\nfrom contextlib import redirect_stdout, suppress\nfrom kproto.__main__ import main\n"
            f"sys.argv = {arguments!r}\nwith redirect_stdout(io.StringIO()), suppress(SystemExit): main()\n"
            "print(json.dumps([name for name in sys.modules if name.startswith('kproto.metadata_log.')]))"
        )
    )
    assert set(loaded) <= {"kproto.metadata_log.finding", "kproto.metadata_log.heartbeats"}


def test_every_public_name_is_there() -> None:
    for name in kproto.__all__:
        assert getattr(kproto, name) is not None
    assert set(kproto.__all__) <= set(dir(kproto))
    with pytest.raises(AttributeError, match="no_such_name"):
        kproto.no_such_name  # noqa: B018


def test_every_message_is_listed() -> None:
    assert dir(messages) == sorted(messages.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        messages.no_such_name  # noqa: B018


MODULES = sorted(
    ".".join(path.relative_to(Path(kproto.__file__).parent.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in Path(kproto.__file__).parent.rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.mark.slow
def test_every_module_can_be_imported_alone() -> None:
    """No cycle is hidden by the order of other imports. One process for all: each starts from an empty kproto."""
    run(
        f"""
import importlib, sys
for name in {MODULES!r}:
    for loaded in [m for m in sys.modules if m.partition(".")[0] in ("kproto", "channel")]:
        if "_codec" not in loaded:
            del sys.modules[loaded]
    importlib.import_module(name)
"""
    )


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(kproto.ConfigurationError, match="choose cython or construct"):
        kproto.codec.get_codec("rust")
