"""The ``kproto`` command. Each sub-command is a module of its own, imported when it is chosen.

Every user error ends here, as one line on standard error and exit code 2. A reader that closes the pipe
(``kproto inspect ... | head``) ends the command quietly with 141 and Ctrl-C with 130, as a shell would say it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import click

from kproto import __version__
from kproto.cli import settings
from kproto.errors import KprotoError
from kproto.extras import EXTRAS, install_command
from kproto.text import meant, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main"]

COMMANDS: Final = {
    "inspect": "Show each control request, what it changed, and the broker's answer.",
    "doctor": "Say what is wrong with a control plane, the worst first.",
    "top": "Show what flows now: rates, latency, epochs, latest changes, findings.",
    "summary": "Sum up captures in a second: controllers, changes, errors, delays, losses.",
    "analyze": "Turn captures into tables with PySpark, and sum them up.",
    "query": "Ask the tables: who led, who is behind, what flapped, who was stale.",
    "report": "Write a report as one HTML page: timeline, delays, zombies, errors.",
    "tables": "Describe the tables: columns, types, units and joins.",
    "generate": "Make captures of a synthetic fleet, of any size, with planted faults.",
    "decode": "Read one message, header or frame: JSON, or every field with its offset.",
    "encode": "Write one message, header or frame from Kafka's JSON form.",
    "controller": "Lead a real cluster as its controller, by ZooKeeper.",
    "brokers": "Run embedded brokers in the foreground, for a controller to lead.",
    "metadata": "Show a cluster's brokers, controller, leaders, ISR and epochs.",
    "check": "Verify captures and recordings, packet by packet.",
    "tap": "Relay Kafka connections and record them as pcapng.",
    "replay": "Send a captured controller's requests to a broker again.",
    "send": "Send one request to a broker, and print its answer.",
    "demo": "Run a live cluster in one process, record it, and make tables of the recording.",
    "wireshark": "Make Wireshark and tshark read the three control requests.",
    "completion": "Print the script that completes commands in bash, zsh or fish.",
    "codec": "Answer decode and encode questions, one JSON object a line.",
}
"""Sub-command -> its line in ``kproto --help``. The module of the same name here holds it as ``command``."""

EXIT_WRONG_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141

_DUCKDB_INTERRUPTED: Final = "Query interrupted"
"""The text of DuckDB's ``RuntimeError`` where Ctrl-C comes amid a query."""

_HINTS: Final[dict[type[BaseException], str]] = {
    FileNotFoundError: "; check the path",
    IsADirectoryError: "; name a file in it",
    PermissionError: "; try sudo, or chmod it",
}
"""What to try where the system refuses a file."""


_FILTERS: Final = ("--since", "--until", "--api", "--broker", "--controller", "--topic", "--partition")
"""Options of the commands that show a part of captures, which people try with others."""


class Commands(click.Group):
    """A group that imports a sub-command when it is chosen, and turns every foreseen failure into one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"kproto.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            if args[0] == "audit":
                ctx.fail("audit is a tool of kproto's developers: run tools/audit.py CAPTURE... in a checkout")
            tip = meant(args[0], COMMANDS, "")
            ctx.fail(f"there is no command {args[0]!r}{tip and f'; {tip}'}")
        if any(not word and not before.startswith("-") for before, word in pairwise(args)):
            ctx.fail("an argument is empty, which would be this directory; is a variable of the shell unset?")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            ctx.default_map = {name: settings.apply(command, name, COMMANDS)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # flushed here, where a closed pipe can still be handled
        except BrokenPipeError:
            _discard_output()
            ctx.exit(EXIT_PIPE_CLOSED)
        except (KeyboardInterrupt, RuntimeError) as e:
            if isinstance(e, RuntimeError) and str(e) != _DUCKDB_INTERRUPTED:
                raise
            ctx.exit(EXIT_INTERRUPTED)
        return result

    def main(  # type: ignore[override]  # click's overloads say the same of standalone_mode in more words
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line; ends the process unless ``standalone_mode`` is off."""
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")  # a narrow locale costs a character, not the command
        try:
            try:
                with _interrupts():
                    code = super().main(args, standalone_mode=False, **extra)
            except click.exceptions.NoArgsIsHelpError as e:
                click.echo(e.format_message())
                code = EXIT_WRONG_INPUT
        except click.ClickException as e:
            code = _tell(e)
        except click.Abort:
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            _discard_output()
            code = EXIT_PIPE_CLOSED
        except (KprotoError, OSError, ImportError) as e:
            if isinstance(e, ImportError) and e.name != "kproto._codec" and _package(e) not in EXTRAS:
                raise
            code = _tell(click.ClickException(reason_of(e)))
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def reason_of(error: BaseException) -> str:
    """Describe a failure in one line for the terminal."""
    if isinstance(error, OSError) and error.strerror:
        names = [os.fspath(n) for n in (error.filename, error.filename2) if isinstance(n, (str, bytes, os.PathLike))]
        paths = " -> ".join(os.fsdecode(n) for n in names)
        said = error.strerror[0].lower() + error.strerror[1:]  # other libraries name a path there
        text = (f"{paths}: {said}" if paths else said) + _HINTS.get(type(error), "")
    elif isinstance(error, ImportError) and _package(error) in EXTRAS:
        package = _package(error)
        text = f"this needs {package}, which is not installed; try: {install_command(EXTRAS[package])}"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def _package(error: ImportError) -> str:
    return (error.name or "").partition(".")[0]


def _tell(error: click.ClickException) -> int:
    """Print a failure as one line; gives the exit code."""
    name, text = "kproto", printable(" ".join(error.format_message().split()))
    if isinstance(error, click.NoSuchOption) and error.option_name in _FILTERS:
        text = f"there is no option {error.option_name}, which inspect, summary and query have"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        name = error.ctx.command_path
        text = text if text.endswith("?") else f"{text.rstrip('.')}; try '{name} --help'"
    print(f"{name}: {text}", file=sys.stderr)
    return EXIT_WRONG_INPUT


def _open_closed_streams() -> None:
    """Let standard streams that the caller has closed be empty or lead nowhere, instead of missing."""
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


@contextmanager
def _interrupts() -> Iterator[None]:
    """Let SIGINT end the command, even if it was started with SIGINT ignored, as a script's background jobs are.

    Python drops an exception of a signal handler that runs inside a weak reference's callback, as at imports, or
    ``__del__``. Then SIGINT is raised once more.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    former = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            former(unraisable)
            return
        again = threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT])
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = former


def _discard_output() -> None:
    """Point standard output, whose reader has ended, to /dev/null, so that the interpreter can flush it."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, descriptor)
    os.close(devnull)


@click.group(
    name="kproto",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    epilog="Every command has its own --help, with examples. The pages in docs/ describe their input and output.",
)
@click.version_option(__version__, "-V", "--version", message="kproto %(version)s", help="Show the version.")
def main() -> None:
    """Kafka's controller-to-broker protocol: LeaderAndIsr, StopReplica, UpdateMetadata.

    \b
      kproto inspect control.pcap
          every control request and its answer
      kproto inspect control.pcap --broker 7 --partition orders-3
          who told broker 7 that, and when?
      kproto analyze control.pcap --out tables
          the same as Parquet tables
    """
