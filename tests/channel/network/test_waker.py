"""The descriptor by which other threads end a wait."""

import select

from channel.network.sockets import Waker


def test_a_waker_is_readable_until_it_is_drained_however_often_that_is() -> None:
    waker = Waker()

    def is_readable() -> bool:
        return bool(select.select([waker], [], [], 0)[0])

    waker.drain()  # nothing is in it
    waker.wake()
    waker.wake()
    assert is_readable()
    waker.drain()
    assert not is_readable()
    waker.drain()
    waker.close()
    waker.close()
    waker.wake()
