"""Where servers connect to for others, and where not."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest

from kubecore.destinations import Destinations, is_own
from kubecore.errors import StatusError

ELSEWHERE = Destinations(is_own=lambda address: str(address) == "10.0.0.1")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "224.0.0.1",
        "ff02::1",
        "10.0.0.1",
        "::ffff:10.0.0.1",
        "localhost",
    ],
)
async def test_addresses_of_this_machine_alone_are_refused(address: str) -> None:
    with pytest.raises(StatusError) as caught:
        await ELSEWHERE.resolve(address)
    assert (caught.value.code, caught.value.message) == (400, "address not allowed")


@pytest.mark.parametrize("address", ["10.0.0.2", "192.0.2.1", "fd00::2", "8.8.8.8"])
async def test_other_addresses_are_admitted_as_they_are(address: str) -> None:
    assert await ELSEWHERE.resolve(address) == address


async def test_a_name_that_leads_home_is_refused_even_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["192.0.2.1", "127.0.0.1"]

    async def resolve(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answer, 0)) for answer in answers]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(StatusError):
        await ELSEWHERE.resolve("mixed.example.com")
    answers.pop()
    assert await ELSEWHERE.resolve("mixed.example.com") == "192.0.2.1"


def test_the_kernel_tells_own_addresses_from_others() -> None:
    assert is_own(ipaddress.ip_address("127.0.0.1"))
    assert not is_own(ipaddress.ip_address("192.0.2.1"))


def test_exceptions_are_admitted() -> None:
    trusting = Destinations(allowed=(ipaddress.ip_network("127.0.0.0/8"),))
    assert trusting.admits(ipaddress.ip_address("127.0.0.1"))
    assert not trusting.admits(ipaddress.ip_address("::1"))
