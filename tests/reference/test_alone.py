"""The reference needs nothing compiled, and says so by working where the extension cannot be had."""

import textwrap

from commands import python_prints

PROGRAM = textwrap.dedent(
    """
    import sys

    class NoExtension:
        def find_spec(self, name, path=None, target=None):
            if name == "kproto._codec":
                raise ImportError("the extension was asked for")

    sys.meta_path.insert(0, NoExtension())
    import kproto.reference as reference
    from kproto.codec import get_codec

    assert get_codec("construct") is reference
    for api in (3, 4, 5, 6, 7, 17, 18, 19, 20, 36, 37, 56, 58, 62, 63, 67):
        for kind, decode in (("request", reference.decode_request), ("response", reference.decode_response)):
            message = reference.message_class(api, kind)()
            assert decode(api, message.version, reference.encode(message, message.version)) == message
    header = reference.decode_request_header(reference.encode_request_header(reference.RequestHeader(), 2), 2)
    assert header == reference.RequestHeader()
    print(*sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "pyarrow", "numpy", "kazoo")))
    """
)


def test_without_the_extension_and_without_optional_packages() -> None:
    assert python_prints(PROGRAM).split() == []
