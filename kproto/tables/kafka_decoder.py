"""Runs Kafka's own message classes as a decoder, in a process that answers one JSON object a line."""

from __future__ import annotations

import json
import shlex
import subprocess
from contextlib import suppress
from threading import Thread, Timer
from typing import TYPE_CHECKING, Any, Final

from kproto.api import ApiKey
from kproto.errors import ConfigurationError
from kproto.tables.decoders import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from kproto.tables.decoders import AuditedBody

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
            self._process = subprocess.Popen(  # noqa: S603  # the user's own command
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
