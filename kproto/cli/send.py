"""``kproto send``: sends one request to any broker, and prints its answer."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from kproto.cli.message_options import json_object, message_of, read_input
from kproto.cli.options import client_options, complete_api
from kproto.cli.times import Seconds
from kproto.tables.filters import parse_api


@click.command(
    epilog="""\b
Examples:
  kproto send 127.0.0.1:19092 --api UpdateMetadata --file request.json
  echo '{"topics":null,"allowAutoTopicCreation":false,
      "includeTopicAuthorizedOperations":false}' \\
    | kproto send 127.0.0.1:19092 --api Metadata --api-version 12
  kproto inspect control.pcap --format json | head -n 1 | jq .request \\
    | kproto send 127.0.0.1:19092 --api 6 --api-version 8 """
)
@click.argument("broker", metavar="HOST:PORT")
@click.option(
    "--api", required=True, metavar="API", shell_complete=complete_api, help="Name or number: UpdateMetadata, 6."
)
@click.option("--api-version", type=int, metavar="N", help="Version; by default the newest.")
@click.option(
    "--file",
    "source",
    default="-",
    show_default=False,
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="The request in Kafka's JSON form; by default standard input.",
)
@click.option("--client-id", default="kproto", help="The client id in the request's header.")
@client_options(30.0, Seconds(0.001, 86_400), "Seconds to wait.", "Properties: security.protocol, ssl.*, sasl.*.")
def command(broker: str, api: str, api_version: int | None, source: str, client_id: str, how: dict[str, Any]) -> None:
    """Send one request and print its answer in Kafka's JSON form.

    Brokers obey any sender with a current controller epoch: a request can make a real broker lead or delete partitions.
    """
    from channel.addresses import parse_address
    from channel.network.node_client import NodeClient
    from kproto.api import ApiKey, check_version
    from kproto.codec import message_class

    address, api_key = parse_address(broker), parse_api(api)
    version = ApiKey(api_key).info.max_version if api_version is None else api_version
    check_version(api_key, version)
    request = message_of(message_class(api_key, "request"), json_object(read_input(source, None)), version)
    with NodeClient(address, client_id, discover_versions=False, **how) as client:
        answer = client.ask(request, version)
    print(json.dumps(answer.to_json(version), indent=2 if sys.stdout.isatty() else None))
