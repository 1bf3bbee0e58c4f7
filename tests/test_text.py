"""Text from elsewhere, as it is shown."""

import os
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.text import pasted, printable


@given(st.text(max_size=60), st.integers(3, 50))
def test_a_shown_text_is_one_printable_line_of_bounded_length(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    assert (shown == text) == (text.isprintable() and len(text) <= limit)


@given(st.lists(st.binary(max_size=20).map(lambda word: word.replace(b"\0", b"")), min_size=1))
@settings(max_examples=20)
def test_a_shell_reads_the_words_of_a_pasted_line_whatever_bytes_they_have(words: list[bytes]) -> None:
    line = pasted(map(os.fsdecode, words))
    assert line.isprintable()
    for locale in ("C", "C.UTF-8"):
        script = ["bash", "-c", f"printf '%s\\0' {line}"]
        read = subprocess.run(script, env={"LC_ALL": locale}, capture_output=True, check=True).stdout
        assert read == b"".join(word + b"\0" for word in words)


def test_letters_of_any_language_stay() -> None:
    assert printable("größe-Ω-日本") == "größe-Ω-日本"
    assert printable("x" * 3000) == "x" * 1997 + "..."
