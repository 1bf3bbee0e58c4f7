"""kproto as one of the peers: a command that their runner calls beside the others, on the same bytes.

    run.sh SCRATCH --payloads DIR --product "python benches/peers/product.py"

It needs the runner's ``python/common.py`` on the path. ``columns`` and ``encode-columns`` are ops of this peer alone:
decoding to Arrow columns, and encoding from them.
"""

from __future__ import annotations

from collections.abc import Callable

import common  # type: ignore[import-not-found]  # the runner's own module

from kproto.codec import decode_request, encode

APIS = {"LeaderAndIsr": 4, "StopReplica": 5, "UpdateMetadata": 6}


def decoder(api_key: int) -> Callable[[bytes, int], object]:
    def decode(data: bytes, version: int) -> object:
        return decode_request(api_key, version, data)

    return decode


if __name__ == "__main__":
    common.main("product", {name: (decoder(key), encode) for name, key in APIS.items()})
