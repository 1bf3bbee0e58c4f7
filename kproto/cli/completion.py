"""``kproto completion``: prints the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Examples:
  kproto completion bash > ~/.local/share/bash-completion/completions/kproto
  kproto completion zsh > "${fpath[1]}/_kproto"
  kproto completion fish > ~/.config/fish/completions/kproto.fish """
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes kproto's commands and options in a shell.

    The shell reads it when it starts next.
    """
    from kproto.cli import main

    completion = get_completion_class(shell)
    assert completion is not None, shell
    click.echo(completion(main, {}, "kproto", "_KPROTO_COMPLETE").source())
