"""Kafka's error codes by number and name, as kio has them. tests/oracle asks Kafka's own classes."""

from kio.schema.errors import ErrorCode as Kios

from kproto.error_codes import ErrorCode, error_name, is_retriable, named_error


def test_a_number_without_a_name() -> None:
    assert error_name(4711) == "UNKNOWN(4711)"
    assert is_retriable(4711) is False


def test_every_code_of_kafka_and_no_other() -> None:
    known = {each.name.upper(): (each.value, each.retriable) for each in Kios}
    assert {name: (int(code), code.retriable) for name, code in ErrorCode.__members__.items()} == known
    assert [int(code) for code in ErrorCode] == list(range(-1, 128))
    for name, (number, retriable) in known.items():
        assert error_name(number) == name
        assert named_error(number) == f"{name} ({number})"
        assert is_retriable(number) is retriable
