#!/usr/bin/env python3
"""Compares how both codecs, and Kafka's own classes, read the frames of captures: ``tools/audit.py --help``.

The C-accelerated codec and the reference share no code. Each control frame is read by each of them and written again;
what differs is a row of the table ``AUDIT``.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import click
import pyarrow as pa
import pyarrow.parquet as pq

from kproto.api import CONTROL_APIS, ApiKey, api_name
from kproto.capture import WHOLE, CapturePoint, CaptureSummary
from kproto.capture.capture_points import point_name
from kproto.capture.read import problem_of, read_frames
from kproto.cli import EXIT_WRONG_INPUT, reason_of
from kproto.cli.options import CaptureCommand, format_option, parse_ports
from kproto.cli.progress import reading
from kproto.cli.sections import Section, print_sections
from kproto.codec import get_codec
from kproto.errors import (
    CaptureError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    KprotoError,
    UnsupportedVersion,
    first_reasons,
)
from kproto.json_form import snake_case
from kproto.tables.arrays import plain_text
from kproto.tables.files import open_file
from kproto.tables.points import points_of
from kproto.tables.schemas import TIME, column, described
from kproto.tables.whole_file import whole_file
from kproto.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from kproto.capture import Frame
    from kproto.codec import Codec
    from kproto.types import Json

Outcome: TypeAlias = Literal["equal", "values_differ", "one_rejects", "both_reject", "reencode_differs"]
"""``equal``: all read the same values and write the same bytes again. ``both_reject``: none can read it, which is no
disagreement. The others are mismatches."""

_MISSING: Final = "(no such field)"
_BYTES_READ: Final = "bytes_read"
_SHOWN_BYTES: Final = 16
_SHOWN_TEXT: Final = 300


class AuditedBody(NamedTuple):
    """A body to read.

    Attributes:
        api_key, version: The API and version of its request.
        kind: Request or response.
        data: Its bytes.
    """

    api_key: int
    version: int
    kind: Literal["request", "response"]
    data: bytes


class Reading(NamedTuple):
    """A decoder's result for a body.

    Attributes:
        json: Its fields in Kafka's JSON form; None if it was refused.
        used: The length of the message in bytes.
        written: The same message, encoded again.
        error: The reason why it was refused, or cannot be written again.
    """

    json: Json | None
    used: int = 0
    written: bytes | None = None
    error: str | None = None


class Decoder(Protocol):
    """An implementation of the protocol."""

    @property
    def name(self) -> str:
        """The decoder's name in the table ``audit``."""

    def read(self, bodies: Sequence[AuditedBody]) -> list[Reading]:
        """Read bodies and write them again."""


class CodecDecoder:
    """One of kproto's codecs.

    Args:
        name: The decoder's name in the table ``audit``: ``cython`` or ``construct``.
        codec: The codec, as ``kproto.codec.get_codec`` gives it.
    """

    def __init__(self, name: str, codec: Codec) -> None:
        self.name = name
        self._codec = codec

    def read(self, bodies: Sequence[AuditedBody]) -> list[Reading]:
        """Read bodies and write them again."""
        return [self._read(body) for body in bodies]

    def _read(self, body: AuditedBody) -> Reading:
        codec = self._codec
        read = codec.decode_request_from if body.kind == "request" else codec.decode_response_from
        try:
            message, used = read(body.api_key, body.version, body.data)
        except (DecodeError, UnsupportedVersion) as e:
            return Reading(None, error=str(e))
        fields = message.to_json(body.version)
        try:
            return Reading(fields, used, codec.encode(message, body.version))
        except EncodeError as e:
            return Reading(fields, used, error=str(e))


class Comparison(NamedTuple):
    """A comparison of the decoders' readings of one body.

    Attributes:
        outcome: In one word.
        field_path: The first difference: a field, e.g. ``topic_states[0].topic_name``, or a byte of the body.
        values: Each decoder's value there, as JSON, or as hexadecimal bytes; empty without a difference.
        differences: The number of fields that differ.
    """

    outcome: Outcome
    field_path: str | None
    values: dict[str, str]
    differences: int


def compare(data: bytes, readings: Mapping[str, Reading]) -> Comparison:
    """Compare the readings of one body with each other, and the encoded messages with the body.

    Args:
        data: The body.
        readings: Each decoder's result, by the decoder's name.
    """
    refused = [reading.json is None for reading in readings.values()]
    if all(refused):
        return Comparison("both_reject", None, {}, 0)
    if any(refused):
        return Comparison("one_rejects", None, {}, 0)
    fields = [{**(reading.json or {}), _BYTES_READ: reading.used} for reading in readings.values()]
    found = list(_differences(fields, ""))
    if found:
        path, values = found[0]
        shown = {name: _as_text(value) for name, value in zip(readings, values, strict=True)}
        return Comparison("values_differ", path, shown, len(found))
    for each in readings.values():
        read = data[: each.used]
        if each.written != read:
            at = _first_difference(each.written or b"", read)
            shown = {name: _hex(other.written, at) for name, other in readings.items()}
            return Comparison("reencode_differs", f"byte {at}, where the body has {_hex(read, at)}", shown, 1)
    return Comparison("equal", None, {}, 0)


def _differences(values: Sequence[Any], path: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each field that differs between the values: its path, and its value in each."""
    first = values[0]
    if all(value == first and type(value) is type(first) for value in values):
        return
    if all(isinstance(value, dict) for value in values):
        for name in dict.fromkeys(name for value in values for name in value):
            field = snake_case(name)
            yield from _differences(
                [value.get(name, _MISSING) for value in values], f"{path}.{field}" if path else field
            )
    elif all(isinstance(value, list) and len(value) == len(first) for value in values):
        for number, items in enumerate(zip(*values, strict=True)):
            yield from _differences(items, f"{path}[{number}]")
    else:
        yield path, values


def _as_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_TEXT else f"{text[: _SHOWN_TEXT - 1]}…"


def _first_difference(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _hex(data: bytes | None, at: int) -> str:
    """Write some bytes in hexadecimal, or say that the message cannot be written again."""
    return "cannot be written" if data is None else data[at : at + _SHOWN_BYTES].hex() or "end"


_ANSWER_SECONDS: Final = 300.0
"""Seconds to wait for the first answer, which may include Maven and the JVM's start."""

_PATIENCE_SECONDS: Final = 3.0
"""After this number of seconds without the first answer a message says that the command is waiting."""

_END_SECONDS: Final = 10.0


class KafkaDecoder:
    """Asks a process with Kafka's classes. Close it, or use it in a ``with`` block.

    Args:
        command: The process, e.g. ``tools/oracle/oracle serve``: it reads questions from standard input and answers
            each by one line on standard output.
        tell: Called with a sentence, in another thread, where the first answer takes seconds.

    Raises:
        ConfigurationError: There is no such program.
    """

    name = "kafka"

    def __init__(self, command: str, tell: Callable[[str], object] | None = None) -> None:
        self._command = command
        self._tell = tell
        try:
            self._process = subprocess.Popen(  # the user's own command
                shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except (OSError, ValueError, IndexError) as e:
            raise ConfigurationError(f"--oracle {command!r} cannot be started: {e}") from e

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, bodies: Sequence[AuditedBody]) -> list[Reading]:
        """Read bodies and write them again.

        Raises:
            ConfigurationError: The process ended, or gave an answer of another form.
        """
        asked = [body for body in bodies if _is_known(body)]
        answers = iter(
            self._ask(
                [
                    {"op": "decode", "api": b.api_key, "version": b.version, "kind": b.kind, "hex": b.data.hex()}
                    for b in asked
                ]
            )
        )
        return [_reading(next(answers)) if _is_known(body) else _UNKNOWN for body in bodies]

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # the process has ended by itself
                stream.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        out, answers = self._process.stdin, self._process.stdout
        assert out is not None
        assert answers is not None

        def write() -> None:
            with suppress(OSError, ValueError):  # the process ended: reading the answers reports it
                out.writelines(json.dumps(question) + "\n" for question in questions)
                out.flush()

        limit = Timer(_ANSWER_SECONDS, self._process.kill)
        patience = Timer(_PATIENCE_SECONDS, self._tell_of_waiting)
        limit.start()
        patience.start()
        writer = Thread(target=write, name="audit-questions")
        writer.start()
        try:
            return [self._answer(answers.readline()) for _ in questions]
        except BaseException:
            self._process.kill()  # frees the writer
            raise
        finally:
            writer.join()
            limit.cancel()
            patience.cancel()

    def _tell_of_waiting(self) -> None:
        tell = self._tell
        if tell is not None:
            tell(f"waiting for the first answer of --oracle {self._command!r}, at most {_ANSWER_SECONDS:.0f} s")

    def _answer(self, line: str) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or "ok" not in answer:
            said = f"said {line[:100]!r}" if line else f"ended, or said nothing for {_ANSWER_SECONDS:.0f} s"
            raise ConfigurationError(
                f"--oracle {self._command!r} {said} instead of an answer; try e.g. 'tools/oracle/oracle serve'"
            )
        self._tell = None  # later answers come quickly
        return answer


_UNKNOWN: Final = Reading(None, error="Kafka 3.9.1 has no such version, and refuses it before it reads the body")


def _is_known(body: AuditedBody) -> bool:
    return 0 <= body.version <= ApiKey(body.api_key).info.max_version


def _reading(answer: dict[str, Any]) -> Reading:
    if not answer.get("ok"):
        return Reading(None, error=str(answer.get("error", "refused")))
    written = answer.get("reencoded")
    return Reading(
        answer.get("json"),
        int(answer.get("consumed", 0)),
        None if written is None else bytes.fromhex(written),
        answer.get("reencode_error"),
    )


AGREEMENTS: Final = frozenset({"equal", "both_reject", "incomplete", "bad_input"})
"""Outcomes other than a mismatch."""

AUDIT: Final = described(
    "Control frames that the decoders disagree on, a row each; and how many frames had every other outcome.",
    column("frame_id", pa.binary(), "The frame. Joins frames; null in a row that counts frames."),
    column("capture", pa.string(), "Capture point: as declared, or the file's name without rotation and compression."),
    column("ts", TIME, "When the frame's first byte passed (UTC, us); null in a row that counts."),
    column("api_key", pa.int16(), "4 LeaderAndIsr, 5 StopReplica, 6 UpdateMetadata."),
    column("api_version", pa.int16(), "Version of the request; its response has the same."),
    column("direction", pa.string(), "request: controller to broker; response: broker to controller."),
    column(
        "outcome",
        pa.string(),
        "Mismatches: values_differ, one_rejects, reencode_differs. Else equal, both_reject, incomplete (not whole, so "
        "not read), or bad_input (a capture, or a piece of one, that cannot be read).",
    ),
    column("frames", pa.int64(), "How many frames the row is about: 1 of a mismatch."),
    column("field_path", pa.string(), "The first field that differs, or the first byte; null where none does."),
    column("differences", pa.int64(), "How many fields differ; null in a row that counts."),
    column("cython", pa.string(), "What the C-accelerated codec has there: JSON, or hexadecimal bytes."),
    column("construct", pa.string(), "What the reference has there."),
    column("kafka", pa.string(), "What Kafka's own classes have there; null where they were not asked."),
    column("error_cython", pa.string(), "Why the C-accelerated codec refuses it; null where it does not."),
    column("error_construct", pa.string(), "Why the reference refuses it."),
    column("error_kafka", pa.string(), "Why Kafka's own classes refuse it."),
    column("reason", pa.string(), "Why a capture or a piece of one cannot be read, in a row of each."),
)

_DECODERS: Final = ("cython", "construct", "kafka")
_TOGETHER: Final = 256
_TOGETHER_BYTES: Final = 4 << 20
"""The most frames, and the most bytes of them, that are read at a time."""


def codec_decoders() -> list[Decoder]:
    """kproto's two codecs."""
    return [CodecDecoder("cython", get_codec("cython")), CodecDecoder("construct", get_codec("construct"))]


def audit(
    captures: Iterable[str | CapturePoint],
    decoders: Sequence[Decoder] | None = None,
    *,
    ports: Collection[int] | None = None,
    sample: float = 1.0,
    progress: Callable[[int, int | None], object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read every control frame of captures with each decoder, and write it again.

    Bodies are not shared between frames: the same body sent to a hundred brokers is read a hundred times.

    Args:
        captures: Capture points, or files, by path or URI.
        decoders: Two or more, named ``cython``, ``construct`` or ``kafka``; None for kproto's two codecs.
        ports: The brokers' listeners; None finds them from the traffic.
        sample: Share of the frames to read, by their ids: the same frames in every run.
        progress: Called with the bytes read of the current capture and its size, None if unknown.

    Yields:
        Batches of the schema ``AUDIT``: mismatches as they are found, and at the end of each capture its counts.
    """
    decoders = codec_decoders() if decoders is None else decoders
    for each in captures:
        point = CapturePoint(point_name(each), (each,)) if isinstance(each, str) else each
        counts: Counter[tuple[int, int, str, str]] = Counter()
        summary = CaptureSummary()
        try:
            whole = read_frames(
                point,
                ports=ports,
                apis=CONTROL_APIS,
                capture=point.name,
                progress=progress,
                summary=summary,
                opener=open_file,
            )
            for frames in _together(_sampled(whole, sample, counts)):
                rows = list(_mismatches(frames, decoders, counts))
                if rows:
                    yield pa.RecordBatch.from_pylist(rows, AUDIT)
            problem = problem_of(point, summary, opener=open_file)
        except CaptureError as e:
            problem = str(e)
        reasons = [] if problem is None else [problem]
        reasons += [f"{bad.file}: {bad.reason}, at byte {bad.offset}" for bad in summary.bad_inputs]
        rows = [
            {
                "capture": plain_text(point.name),
                "outcome": "bad_input",
                "frames": 0,
                "reason": plain_text(reason),
            }
            for reason in reasons
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, AUDIT)
        names = ("api_key", "api_version", "direction", "outcome")
        rows = [
            {"capture": plain_text(point.name), **dict(zip(names, key, strict=True)), "frames": number}
            for key, number in sorted(counts.items())
        ]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, AUDIT)


def _sampled(
    frames: Iterable[Frame], sample: float, counts: Counter[tuple[int, int, str, str]]
) -> Iterator[tuple[bytes, Frame]]:
    """The sampled whole frames with their ids; counts those that are not whole."""
    limit = int(sample * 2**64)
    for frame in frames:
        if frame.api_key is None or frame.api_version is None:
            continue  # a response whose request is not in the capture
        frame_id = frame.frame_id
        if int.from_bytes(frame_id[:8]) >= limit:
            continue
        if frame.status != WHOLE:
            counts[frame.api_key, frame.api_version, frame.direction, "incomplete"] += 1
        else:
            yield frame_id, frame


def _together(frames: Iterable[tuple[bytes, Frame]]) -> Iterator[list[tuple[bytes, Frame]]]:
    held: list[tuple[bytes, Frame]] = []
    size = 0
    for item in frames:
        held.append(item)
        size += len(item[1].content)
        if len(held) >= _TOGETHER or size >= _TOGETHER_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _mismatches(
    frames: Sequence[tuple[bytes, Frame]], decoders: Sequence[Decoder], counts: Counter[tuple[int, int, str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield rows of the frames that the decoders read differently; count the others."""
    bodies = []
    for _frame_id, frame in frames:
        assert frame.api_key is not None
        assert frame.api_version is not None
        bodies.append(AuditedBody(frame.api_key, frame.api_version, frame.direction, bytes(frame.body)))
    readings = [
        dict(zip((d.name for d in decoders), found, strict=True))
        for found in zip(*(d.read(bodies) for d in decoders), strict=True)
    ]
    for (frame_id, frame), body, found in zip(frames, bodies, readings, strict=True):
        comparison = compare(body.data, found)
        if comparison.outcome in AGREEMENTS:
            counts[body.api_key, body.version, frame.direction, comparison.outcome] += 1
            continue
        yield {
            "frame_id": frame_id,
            "capture": plain_text(frame.connection.capture),
            "ts": frame.time_ns // 1000,
            "api_key": body.api_key,
            "api_version": body.version,
            "direction": frame.direction,
            "outcome": comparison.outcome,
            "frames": 1,
            "field_path": comparison.field_path,
            "differences": comparison.differences,
            **{name: plain_text(comparison.values.get(name)) for name in _DECODERS},
            **{f"error_{name}": plain_text(found[name].error) for name in _DECODERS if name in found},
        }


_SHOWN: Final = 20
"""The most mismatches that the text output lists."""

_WARNED: Final = 3
"""The most bad inputs of which a warning is printed."""


@click.command(
    cls=CaptureCommand,
    epilog="""\b
Examples:
  tools/audit.py control.pcap
      do both codecs say the same of every frame?
  tools/audit.py captures/ --oracle 'tools/oracle/oracle serve'
      and Kafka's own classes?
  tools/audit.py big.pcap --sample 0.01
      of one frame in a hundred
  tools/audit.py control.pcap --write audit.parquet
      the table audit, as Parquet
  tools/audit.py control.pcap --format json \\
      | jq '.mismatches[] | {outcome, field_path, cython, construct}'

\b
The exit code is 1 if any frame is read in two ways. """,
)
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@click.option("--oracle", metavar="COMMAND", help="Compare Kafka's own classes too: a program that answers JSON lines.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the frames to read; the same frames in every run.",
)
@click.option(
    "--ports", multiple=True, metavar="PORT,...", help="The brokers' listeners; found from the traffic by default."
)
@click.option(
    "--write",
    "write",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the table audit to a Parquet file.",
)
@format_option("json", description="Text, or one JSON object.")
def command(
    captures: tuple[str, ...],
    *,
    oracle: str | None,
    sample: float,
    ports: tuple[str, ...],
    write: Path | None,
    form: str,
) -> None:
    """Read every control frame with both codecs, write it again, and list the differences.

    The C-accelerated codec and the reference share no code. A frame that both read alike and write again unchanged
    was read correctly, unless both have the same fault; --oracle compares Kafka's own classes as well.
    """
    if write is not None and not write.absolute().parent.is_dir():
        raise ConfigurationError(
            f"there is no directory {write.parent} for {write.name}; make it, or name another file"
        )
    with ExitStack() as stack:
        decoders: list[Decoder] = codec_decoders()
        if oracle is not None:
            decoders.append(stack.enter_context(KafkaDecoder(oracle, _teller())))
        points = points_of(captures)
        progress = stack.enter_context(reading())
        batches = [
            batch
            for point in points
            for batch in audit(
                [point], decoders, ports=parse_ports(ports), sample=sample, progress=progress.of(point.name)
            )
        ]
    table = pa.Table.from_batches(batches, AUDIT)
    unread = [row["reason"] for row in table.to_pylist() if row["outcome"] == "bad_input"]
    rows = [row for row in table.to_pylist() if row["outcome"] != "bad_input"]
    if not rows:
        raise CaptureError(
            first_reasons(unread) or "no control frame in these captures; kproto summary says what they hold"
        )
    for reason in unread[:_WARNED]:
        print(f"warning: {printable(reason)}; skipped", file=sys.stderr)
    if len(unread) > _WARNED:
        print(f"warning: {len(unread) - _WARNED} more bad inputs; --format json lists all", file=sys.stderr)
    if write is not None:
        with whole_file(write) as file:
            pq.write_table(table, file)
    mismatches = [row for row in rows if row["outcome"] not in AGREEMENTS]
    if form == "json":
        print(json.dumps(_as_json(rows, mismatches, unread)))
    else:
        print_sections(_sections(rows, mismatches, [decoder.name for decoder in decoders]))
    if mismatches:
        sys.exit(1)


def _teller() -> Callable[[str], None] | None:
    """Return a function that tells people what a command waits for; None unless standard error is a terminal."""
    return (lambda text: print(printable(text), file=sys.stderr)) if sys.stderr.isatty() else None


def _counts(rows: list[dict[str, Any]]) -> Counter[tuple[int, int, str, str]]:
    counts: Counter[tuple[int, int, str, str]] = Counter()
    for row in rows:
        counts[row["api_key"], row["api_version"], row["direction"], row["outcome"]] += row["frames"]
    return counts


def _as_json(rows: list[dict[str, Any]], mismatches: list[dict[str, Any]], unread: list[str]) -> dict[str, Any]:
    names = ("api_key", "api_version", "direction", "outcome")
    return {
        "frames": sum(row["frames"] for row in rows),
        "counts": [{**dict(zip(names, key, strict=True)), "frames": n} for key, n in sorted(_counts(rows).items())],
        "mismatches": [{**row, "frame_id": row["frame_id"].hex(), "ts": row["ts"].isoformat()} for row in mismatches],
        "bad_inputs": unread,
    }


def _sections(rows: list[dict[str, Any]], mismatches: list[dict[str, Any]], names: list[str]) -> list[Section]:
    frames = [
        [api_name(api), str(version), direction, outcome.replace("_", " "), str(number)]
        for (api, version, direction, outcome), number in sorted(_counts(rows).items())
    ]
    verdict = f"{counted(len(mismatches), 'frame')} read in two ways" if mismatches else "no frame read in two ways"
    sections = [
        Section(
            "Audit", text=f"{counted(sum(row['frames'] for row in rows), 'frame')}, {verdict} ({', '.join(names)})"
        ),
        Section("Frames", ["api", ">version", "half", "outcome", ">frames"], frames),
    ]
    if mismatches:
        shown = [
            [
                row["frame_id"].hex()[:12],
                api_name(row["api_key"]),
                str(row["api_version"]),
                row["outcome"].replace("_", " "),
                printable(row["field_path"] or ""),
                *(printable(_said(row, name)) for name in names),
            ]
            for row in mismatches[:_SHOWN]
        ]
        more = f"the first {_SHOWN} of {len(mismatches)}" if len(mismatches) > _SHOWN else ""
        sections.append(Section("Mismatches", ["frame", "api", ">version", "outcome", "field", *names], shown, more))
    return sections


def _said(row: dict[str, Any], name: str) -> str:
    return row[name] if row[name] is not None else row[f"error_{name}"] or "accepts it"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tool; a failure that can be foreseen is one line, and exit code 2."""
    try:
        command(arguments, prog_name="tools/audit.py")
    except (KprotoError, OSError) as e:
        print(f"audit: {printable(reason_of(e))}", file=sys.stderr)
        sys.exit(EXIT_WRONG_INPUT)


if __name__ == "__main__":
    main()
