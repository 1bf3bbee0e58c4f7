"""Errors are one line, say where, survive pickling, and stand in the tree that their module draws."""

import copy
import pickle

import pytest

import kproto
from kproto import errors
from kproto.errors import (
    CaptureError,
    ConfigurationError,
    DecodeError,
    EncodeError,
    FieldNotInVersion,
    FrameTooLarge,
    KprotoError,
    Malformed,
    OutOfRange,
    Truncated,
    UnsupportedApi,
    UnsupportedVersion,
)

PARENTS = {
    DecodeError: KprotoError,
    Truncated: DecodeError,
    Malformed: DecodeError,
    FrameTooLarge: DecodeError,
    EncodeError: KprotoError,
    FieldNotInVersion: EncodeError,
    OutOfRange: EncodeError,
    UnsupportedApi: KprotoError,
    UnsupportedVersion: KprotoError,
    CaptureError: KprotoError,
    ConfigurationError: KprotoError,
}
EXAMPLES = [
    DecodeError("why"),
    Truncated("the bytes end", 7, "topic_states[3].isr", 6, 8),
    Malformed("null", 0),
    FrameTooLarge("a frame of 5 bytes, limit 4", 9),
    EncodeError("null", "rack"),
    FieldNotInVersion("version 0 has no place for it", "type"),
    OutOfRange("2147483648 is no int32"),
    UnsupportedApi(337),
    UnsupportedApi(0, "this codec does not know Produce"),
    UnsupportedVersion(6, 9, "UpdateMetadata", 0, 8),
    CaptureError("not a capture; try tcpdump -w"),
    ConfigurationError("no such codec"),
]


def test_the_tree() -> None:
    defined = {value for value in vars(errors).values() if getattr(value, "__module__", None) == errors.__name__}
    assert {value for value in defined if isinstance(value, type)} - {errors.KprotoError} == set(PARENTS)
    for cls, parent in PARENTS.items():
        assert parent in cls.__bases__
        assert getattr(kproto, cls.__name__) is cls
        assert cls.__name__ in (errors.__doc__ or "")


def test_hostile_input_and_wrong_use_are_different_branches() -> None:
    for cls in (EncodeError, UnsupportedApi, UnsupportedVersion, CaptureError, ConfigurationError):
        assert not issubclass(cls, DecodeError)


def test_every_error_is_a_value_error_and_nothing_else_of_pythons() -> None:
    for cls in PARENTS:
        builtin = {base for base in cls.__mro__ if base.__module__ == "builtins"}
        assert builtin == {ValueError, Exception, BaseException, object}
    assert not issubclass(KprotoError, ValueError)  # the channel's errors are something else


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_one_line_that_survives_pickling(error: KprotoError) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == text
        assert vars(again) == vars(error)


def test_a_decode_error_says_where() -> None:
    error = Truncated("the bytes end", 7, "topic_states[3].isr", 6, 8)
    assert str(error) == "the bytes end (topic_states[3].isr, offset 7, api 6 version 8)"
    assert str(Malformed("null", 0)) == "null (offset 0)"
    assert str(DecodeError("why")) == "why"


def test_an_unsupported_version_says_which_there_are() -> None:
    assert str(UnsupportedVersion(6, 9, "UpdateMetadata", 0, 8)) == "UpdateMetadata (6) has no version 9; it has 0 to 8"
    assert str(UnsupportedVersion(6, 9)) == "api (6) has no version 9"
    assert str(UnsupportedVersion(6, 9, highest=8)) == "api (6) has no version 9; it has 0 to 8"
