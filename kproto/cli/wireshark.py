"""``kproto wireshark``: writes a dissector of control requests and KRaft's records for Wireshark and tshark."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click


@click.command(
    epilog="""\b
Examples:
  kproto wireshark --install
  tshark -r control.pcap -Y 'kproto.leader_epoch == 7'
  tshark -r control.pcap -Y kproto.refused -V
  kproto wireshark > kproto.lua
  tshark -X lua_script:kproto.lua -r control.pcap """
)
@click.option("--install", is_flag=True, help="Write the dissector into Wireshark's folder of personal Lua plugins.")
@click.option("--folder", type=click.Path(path_type=Path), help="Install into this folder instead.")
def command(install: bool, folder: Path | None) -> None:
    """Print or install a Wireshark dissector of the three control requests and of KRaft's metadata records.

    It reads LeaderAndIsr, StopReplica and UpdateMetadata with their responses in every version, and leaves other
    requests to Wireshark's own dissector, but the Fetch by which KRaft's nodes follow the metadata log: it reads the
    records in the answers. Every field has a filter name: kproto.leader_epoch, kproto.isr,
    kproto.topic_name. Refusals and malformed messages are expert information; requests and responses are linked.

    A connection is found by its first control request, whatever its port; name the brokers' ports in Wireshark's
    preferences (Protocols, KPROTO) to see the other requests of these connections too.
    """
    from kproto.wireshark import FILE_NAME, dissector

    if not install:
        if folder is not None:
            raise click.UsageError("--folder goes with --install")
        click.echo(dissector(), nl=False)
        return
    target = (folder or _plugin_folder()) / FILE_NAME
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(dissector(), encoding="utf-8")
    click.echo(f"{target}: installed; Wireshark reads it at its next start, or at Analyze, Reload Lua Plugins")


def _plugin_folder() -> Path:
    """Return the folder of personal Lua plugins, as Wireshark itself names it, or its usual place."""
    program = shutil.which("tshark") or shutil.which("wireshark")
    if program is not None:
        listed = subprocess.run([program, "-G", "folders"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
        for line in listed.stdout.splitlines():
            name, _, path = line.partition(":")
            if name == "Personal Lua Plugins" and path.strip():
                return Path(path.strip())
    return Path.home() / ".local" / "lib" / "wireshark" / "plugins"
