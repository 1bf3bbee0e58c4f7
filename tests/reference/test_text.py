"""Text as Java reads and writes it: what becomes of UTF-8 that is none, and of halves of surrogate pairs."""

import pytest
from wire import string

from kproto import reference
from kproto.reference.sasl_handshake import SaslHandshakeRequest

ODD = "\ufffd"
READ = {
    b"\x80": ODD,
    b"\xff": ODD,
    b"a\xc3": "a" + ODD,
    b"\xe2\x82": ODD,
    b"\xf0\x9f\x98": ODD,
    b"\xc0\x80": ODD * 2,
    b"\xe0\x80\x80": ODD * 3,
    b"\xf4\x90\x80\x80": ODD * 4,
    b"\xf8\x88\x80\x80\x80": ODD * 5,
    b"\xed\xa0\x80": ODD,
    b"\xed\xa0\x80\xed\xb0\x80": ODD * 2,
    b"\xed\xbf\xbfz": ODD + "z",
    b"\xed\xa0": ODD,
    b"\xed\xa0a": ODD + "a",
    b"\xed\xa0\xe2\x82\xac": ODD + "€",
    b"\xed": ODD,
    b"\xeda": ODD + "a",
    b"\xed\x9f\xbf": "\ud7ff",
    b"\xee\x80\x80": "\ue000",
    b"\x00\x7f\xef\xbb\xbf": "\x00\x7f\ufeff",
}
WRITTEN = [
    ("\ud800", b"?"),
    ("a\udfffb", b"a?b"),
    ("\ud83d\ude00", "😀".encode()),  # two halves side by side are one character, as in Java
    ("\ude00\ud83d", b"??"),
    ("\ud83d\ud83d\ude00\ude00", b"?" + "😀".encode() + b"?"),
    ("é€😀\uffff", "é€😀\uffff".encode()),
]


@pytest.mark.parametrize(("data", "text"), READ.items(), ids=[data.hex("-") for data in READ])
def test_read(data: bytes, text: str) -> None:
    assert reference.decode_request(17, 0, string(data, flexible=False)).mechanism == text


@pytest.mark.parametrize(("text", "data"), WRITTEN, ids=[ascii(text) for text, _ in WRITTEN])
def test_written(text: str, data: bytes) -> None:
    assert reference.encode(SaslHandshakeRequest(mechanism=text), 0) == string(data, flexible=False)
