"""``python -m kproto``: the same as the console script."""

from __future__ import annotations

from kproto.cli import main

if __name__ == "__main__":
    main(prog_name="kproto")
