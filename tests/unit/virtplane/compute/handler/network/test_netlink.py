"""Messages about links, as the kernel of this machine writes and reads them."""

from __future__ import annotations

import errno
import socket

import pytest

from virtplane.compute.handler.network.netlink import (
    LinkHeader,
    Netlink,
    attributes,
    nested,
    packed,
)

_DELETE_LINK, _GET_LINK, _NAME = 17, 18, 3
_NO_LINK = 2**31 - 1


def test_the_kernels_links_have_their_names_and_numbers() -> None:
    with Netlink() as kernel:
        messages = kernel.dump(_GET_LINK, LinkHeader().packed())
    found = {
        LinkHeader.of(message).index: attributes(message[LinkHeader.layout.size :])[_NAME]
        .rstrip(b"\0")
        .decode()
        for message in messages
    }
    assert found == dict(socket.if_nameindex())


def test_what_the_kernel_refuses_is_an_error_with_its_number_and_the_socket_stays_usable() -> None:
    with Netlink() as kernel:
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                kernel.change(_DELETE_LINK, LinkHeader(_NO_LINK).packed())
            assert caught.value.errno in (errno.ENODEV, errno.EPERM)
        assert kernel.dump(_GET_LINK, LinkHeader().packed())


def test_attributes_of_any_length_come_back_and_a_broken_one_ends_them() -> None:
    inner = [(1, b"bridge"), (2, b"")]
    written = packed([(3, b"eth0\0"), nested(18, inner), (4, b"\1\2\3\4")])
    read = attributes(written)
    assert read.keys() == {3, 18, 4}
    assert attributes(read[18]) == dict(inner)
    assert attributes(b"\0\0\1\0" + written) == {}
