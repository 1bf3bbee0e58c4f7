"""The ``kproto`` command: the console script, and ``python -m kproto``.

The command line needs packages that the library does without, so this module imports none of them before it can say
what to install.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without click, print in one line what to install and exit with code 2."""
    try:
        from kproto.cli import main as command

        command(prog_name="kproto")
    except ModuleNotFoundError as e:
        if e.name != "click":
            raise
        from kproto.extras import install_command

        print(f"kproto: this needs click, which is not installed; try: {install_command('cli')}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # Ctrl-C while the modules are loaded
        sys.exit(130)


if __name__ == "__main__":
    main()
