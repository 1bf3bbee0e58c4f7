"""What holds for every command: help with examples, one-line errors, quiet ends, nothing imported too early."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import python_prints, run_kproto
from conftest import DATA

import kproto
from kproto.__main__ import main as script
from kproto.cli import COMMANDS, main, reason_of
from kproto.errors import CaptureError, ConfigurationError, Malformed, UnsupportedVersion
from kproto.extras import install_command

IMAGES = DATA.parents[1] / "docs" / "images"

KPROTO = [sys.executable, "-m", "kproto"]
CAPTURE = str(DATA / "captures/ibp-3.9-a.pcap.gz")


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KPROTO, *arguments], capture_output=True, text=True, timeout=120, check=False, **more)


def test_help_lists_every_command_and_shows_examples() -> None:
    result = run_kproto("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert name in result.stdout
    assert "kproto inspect control.pcap --broker 7 --partition orders-3" in result.stdout


def test_the_version_is_the_packages() -> None:
    result = run_kproto("--version")
    assert (result.exit_code, result.stdout) == (0, f"kproto {kproto.__version__}\n")


def test_without_a_command_there_is_help_and_exit_code_2() -> None:
    result = run_kproto()
    assert result.exit_code == 2
    assert "Commands:" in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspekt"], "kproto: there is no command 'inspekt'; did you mean inspect?"),
        (["audit"], "kproto: audit is a tool of kproto's developers: run tools/audit.py CAPTURE... in a checkout; try"),
        (
            ["doctor", ""],
            "kproto: an argument is empty, which would be this directory; is a variable of the shell unset?",
        ),
        (["xyzzy"], "kproto: there is no command 'xyzzy'; try 'kproto --help'"),
        (["--verbos"], "kproto: No such option '--verbos'"),
        (["inspect"], "kproto inspect: Missing argument 'CAPTURE...'; try 'kproto inspect --help'"),
        (["inspect", "--format", "xml", "x"], "kproto inspect: Invalid value for '--format'"),
        (["inspect", "--api", "Lead", "x"], "kproto: there is no api 'Lead'; try"),
        (
            ["inspect", "--api", "LeaderAndIsrs", "x"],
            "kproto: there is no api 'LeaderAndIsrs'; did you mean LeaderAndIsr",
        ),
        (["inspect", "--partition", "orders", "x"], "kproto: 'orders' is not TOPIC-PARTITION; try"),
        (["inspect", "--since", "noon", "x"], "kproto: 'noon' is not a time; try"),
        (["inspect", "--ports", "http", "x"], "kproto: 'http' is not a TCP port"),
        (["inspect", "--brokers", "7", "x"], "kproto: '7' is not ID=HOST:PORT; try"),
        (["inspect", "/no/such/file"], "kproto: /no/such/file: no such file or directory; check the path"),
        (["inspect", str(IMAGES)], f"kproto: {IMAGES}: a directory without a capture or request log"),
        (["inspect", "--since", "2026", "x"], "kproto: '2026' is not a time; try"),
        (["inspect", "--ports", "9092-9095", "x"], "kproto: '9092-9095' is not a TCP port"),
        (["decode", os.devnull], "kproto: /dev/null is empty; try another file"),
        (["encode", os.devnull], "kproto: /dev/null is empty; try another file"),
        (["decode", "x", "--data", "00"], "kproto: x and --data are both given; leave one out"),
        (
            ["decode", "--data", "00"],
            "kproto: the input has 1 byte, and a request header at least 8; if the input is not a request frame",
        ),
        (
            ["decode", "--data", "ff" * 20],
            "kproto: api key -1 is not one of Kafka 3.9.1's; if the input is not a request frame",
        ),
        (["brokers", "--first-id", "2147483647", "--count", "2"], "kproto: broker ids end at 2147483647; choose"),
        (["decode", "/no/such/file"], "kproto: /no/such/file: no such file or directory; check"),
        (["encode", "/"], "kproto: /: is a directory; name a file in it"),
        (["tables", "request"], "kproto: there is no table 'request'; did you mean request"),
        (
            ["summary", CAPTURE, "--broker", "77"],
            "kproto: no control request in these captures passes the filters; leave",
        ),
        (["tables", "compact", CAPTURE], f"kproto: {CAPTURE} is a file; name the directory that kproto analyze wrote"),
        (["codec", "--implementation", "java"], "kproto codec: Invalid value for '--implementation'"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments: list[str], told: str) -> None:
    result = run_kproto(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith(told)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CaptureError("two\nlines"), "two lines"),
        (ConfigurationError("this; try that"), "this; try that"),
        (Malformed("a boolean of 0x02", 7, "is_new", 4, 7), "a boolean of 0x02 (is_new, offset 7, api 4 version 7)"),
        (UnsupportedVersion(6, 9, "UpdateMetadata", 0, 8), "UpdateMetadata (6) has no version 9; it has 0 to 8"),
        (PermissionError(13, "Permission denied", "a.pcap"), "a.pcap: permission denied; try sudo, or chmod it"),
        (OSError(28, "No space left on device"), "no space left on device"),
        (OSError(20, "Failed to open local file 'Runs/T'"), "failed to open local file 'Runs/T'"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"),
            f"this needs pyspark, which is not installed; try: {install_command('pipeline')}",
        ),
    ],
)
def test_every_foreseen_failure_is_one_line(error: Exception, told: str) -> None:
    assert reason_of(error).startswith(told)
    assert "\n" not in reason_of(error)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'kproto[cli]'"),
        ({"url": "https://host/kproto.whl", "archive_info": {}}, "pip install 'kproto[cli]'"),
        ({"url": "file:///home/me/a%20clone", "dir_info": {}}, "pip install '/home/me/a clone[cli]'"),
        ({"url": "file:///src/kproto", "dir_info": {"editable": True}}, "pip install -e '/src/kproto[cli]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    origin: dict[str, object] | None, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr("importlib.metadata.distributions", lambda name: [Distribution()])
    monkeypatch.setattr("kproto.extras.__file__", str(tmp_path / "site-packages" / "kproto" / "extras.py"))
    assert install_command("cli") == command


def test_python_dash_m_is_the_same_command() -> None:
    result = run("inspect", "/no/such/file")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("kproto: /no/such/file: no such file or directory; check the path")


def test_no_optional_package_and_no_command_is_imported_before_it_is_chosen() -> None:
    script = (
        "import json, sys, kproto.cli; kproto.cli.main(['--help'], standalone_mode=False);"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = set(json.loads(python_prints(script).splitlines()[-1]))
    assert not loaded & {"pyspark", "pyarrow", "construct", "numpy", "rich", "zstandard", "prometheus_client", "kazoo"}
    assert not {m for m in loaded if m.startswith(("kproto._codec", "kproto.reference", "kproto.capture", "channel"))}
    assert not {f"kproto.cli.{name}" for name in COMMANDS} & loaded


def test_inspecting_needs_no_optional_package() -> None:
    script = (
        f"import sys, kproto.cli; kproto.cli.main(['inspect', {CAPTURE!r}, '--errors'], standalone_mode=False);"
        "print(sorted({'pyspark', 'pyarrow', 'pandas', 'construct', 'numpy', 'channel'} & set(sys.modules)))"
    )
    assert python_prints(script).splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    with subprocess.Popen(
        [*KPROTO, "inspect", CAPTURE, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        assert json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=120) == 141


def test_ctrl_c_ends_without_a_traceback() -> None:
    with subprocess.Popen(
        [*KPROTO, "codec", "--implementation", "construct"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write("{}\n")
        process.stdin.flush()
        assert "BadQuestion" in process.stdout.readline()  # it is in its loop now
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
        assert process.stderr.read() == ""


def test_a_narrow_locale_costs_characters_not_the_command() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    result = run("inspect", CAPTURE, env=environment)
    assert result.returncode == 0
    assert "UpdateMetadata" in result.stdout


class _Missing:
    """An import hook by which the command line finds this package missing."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "kproto.cli":
            raise ModuleNotFoundError(f"No module named {self.package!r}", name=self.package)


def test_without_click_the_script_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kproto.cli")
    monkeypatch.setattr(sys, "meta_path", [_Missing("click"), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        script()
    assert end.value.code == 2
    assert capsys.readouterr() == (
        "",
        f"kproto: this needs click, which is not installed; try: {install_command('cli')}\n",
    )


def test_another_missing_package_is_not_taken_for_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "kproto.cli")
    monkeypatch.setattr(sys, "meta_path", [_Missing("other"), *sys.meta_path])
    with pytest.raises(ModuleNotFoundError, match="other"):
        script()


class _Broken(io.StringIO):
    """An output that nothing can be written to; it is no file."""

    def __init__(self, error: OSError, of_fileno: type[Exception] = OSError) -> None:
        super().__init__()
        self.error, self.of_fileno = error, of_fileno

    def write(self, _text: str) -> int:
        raise self.error

    def fileno(self) -> int:
        raise self.of_fileno("no descriptor")


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_reader_that_goes_away_ends_quietly_where_output_is_no_file(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Broken(BrokenPipeError(), error))
    assert main(["tables"], standalone_mode=False) == 141


@pytest.mark.parametrize("arguments", [["tables"], ["--help"], ["--version"], []])
def test_a_full_disk_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Broken(OSError(errno.ENOSPC, "No space left on device")))
    assert main(arguments, standalone_mode=False) == 2
    assert capsys.readouterr().err == "kproto: no space left on device\n"
