"""Options that the command line leaves out take their value from the environment, then from a file.

- ``KPROTO_<COMMAND>_<OPTION>``, for example ``KPROTO_METADATA_TIMEOUT``; `SHARED` options also without the command's
  name: ``KPROTO_BOOTSTRAP``.
- The TOML file that ``KPROTO_CONFIG`` names, else ``kproto/config.toml`` below ``$XDG_CONFIG_HOME`` (``~/.config``): a
  table for each command, and `SHARED` options at its top.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MOST: Final = 64 << 20

SHARED: Final = ("bootstrap", "security", "zookeeper", "ports", "timeout")
"""Options that mean the same in every command."""


def apply(command: click.Command, name: str, commands: Collection[str]) -> dict[str, Any]:
    """Let a command's options read their environment variables; give the file's values for them by parameter name.

    Raises:
        click.UsageError: The file cannot be read, or names a command or an option that does not exist.
    """
    options = {
        max(p.opts, key=len).removeprefix("--"): p
        for p in command.params
        if isinstance(p, click.Option) and not p.is_eager
    }
    for option, parameter in options.items():
        names = [f"KPROTO_{name}_{option}", *([f"KPROTO_{option}"] if option in SHARED else [])]
        parameter.envvar = [variable.upper().replace("-", "_") for variable in names]
    path, settings = _file()
    for key, value in settings.items():
        if isinstance(value, dict):
            if key not in commands:
                raise click.UsageError(f"{path}: there is no command {key!r}")
        elif key not in SHARED:
            raise click.UsageError(
                f"{path}: {key!r} belongs in a command's table; at the top stand {', '.join(SHARED)}"
            )
    own = settings.get(name, {})
    for key in own:
        if key not in options:
            raise click.UsageError(f"{path}: 'kproto {name}' has no option --{key}")
    given = {key: value for key, value in settings.items() if key in options and key in SHARED} | own
    for key, value in given.items():
        if not _is_fit(value, options[key]):
            of = f" of 'kproto {name}'" if key in own else ""
            raise click.UsageError(f"{path}: --{key}{of} cannot be {value!r:.60}")
    return {
        str(options[key].name): [value] if options[key].multiple and not isinstance(value, list) else value
        for key, value in given.items()
    }


def _file() -> tuple[Path, Mapping[str, Any]]:
    named = os.environ.get("KPROTO_CONFIG")
    directory = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    path = Path(os.path.expanduser(named or f"{directory}/kproto/config.toml"))  # noqa: PTH111  # without a home, as it is
    if not named and not path.exists():
        return path, {}
    import tomllib

    try:
        return path, tomllib.loads(text_of(path))
    except RecursionError:
        raise click.UsageError(f"the settings in {path} cannot be read: they are nested too deep") from None
    except (OSError, ValueError) as e:
        raise click.UsageError(f"the settings in {path} cannot be read: {getattr(e, 'strerror', None) or e}") from e


def text_of(path: Path) -> str:
    """Return the text of a file of at most 64 MiB.

    Raises:
        OSError: It cannot be read, is larger, or is no file: a pipe or a device may never end.
        UnicodeDecodeError: It is no UTF-8.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        kind = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "a pipe or device, where a file is wanted", str(path))
        content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise OSError(errno.EFBIG, "larger than 64 MiB", str(path))
    return content.decode()


def _is_fit(value: object, option: click.Option) -> bool:
    """Whether a value of a file is one that a command line may give: a text, a number, a flag; or a list of these."""
    values = value if isinstance(value, list) and option.multiple else [value]
    return all(isinstance(each, str | float) or (isinstance(each, int) and abs(each) < 1 << 63) for each in values)
