"""Text from elsewhere, as it is shown."""

from hypothesis import given
from hypothesis import strategies as st

from kproto.text import printable


@given(st.text(max_size=60), st.integers(3, 50))
def test_a_shown_text_is_one_printable_line_of_bounded_length(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.isprintable()
    assert len(shown) <= limit
    assert (shown == text) == (text.isprintable() and len(text) <= limit)


def test_letters_of_any_language_stay() -> None:
    assert printable("größe-Ω-日本") == "größe-Ω-日本"
    assert printable("x" * 3000) == "x" * 1997 + "..."
