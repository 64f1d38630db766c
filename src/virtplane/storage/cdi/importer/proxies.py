"""Through which proxy a request goes: the variables of the environment, read as Go's clients read them.

aiohttp reads them itself, but takes no proxy that is reached over TLS, and says its own name to one that
tunnels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import aiohttp
from yarl import URL

from virtplane.storage.cdi.importer.outcome import ImportFailed


@dataclass(frozen=True, slots=True)
class Proxy:
    """The address of a proxy, without the credentials, which the header `authorization` has."""

    url: URL
    authorization: str = field(default="", repr=False)


def proxy_for(url: URL, environment: Mapping[str, str]) -> Proxy | None:
    """The proxy for `url`; None where it is reached directly. Raises ImportFailed for none of HTTP."""
    text = _variable(environment, f"{url.scheme}_proxy")
    if not text or not url.host or is_direct(url, _variable(environment, "no_proxy")):
        return None
    try:
        proxy = URL(text if "://" in text else f"http://{text}")
    except ValueError as error:
        raise ImportFailed(f"the proxy's address is none: {error}") from error
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ImportFailed(f"the proxy's address is none of HTTP: its scheme is {proxy.scheme!r}")
    if proxy.user is None and proxy.password is None:
        return Proxy(proxy)
    authorization = aiohttp.encode_basic_auth(proxy.user or "", proxy.password or "", "utf-8")
    return Proxy(proxy.with_user(None), authorization)


def is_direct(url: URL, exceptions: str) -> bool:
    """Whether `url` is of the machine itself, or of a place that `exceptions` (NO_PROXY) lists.

    The list has networks, addresses, domains (``example`` and all below it, ``.example`` only what is below
    it), any with a port, or ``*``.
    """
    host, port = (url.host or "").lower().rstrip("."), str(url.port)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in (each.strip().lower() for each in exceptions.split(",")):
        if entry == "*" or (entry and _covers(entry, host, address, port)):
            return True
    return False


def _covers(entry: str, host: str, address: IPv4Address | IPv6Address | None, port: str) -> bool:
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            return False
    place, place_port = _split(entry)
    if place_port not in ("", port):
        return False
    place_address = _address(place)
    if place_address is not None or address is not None:
        return place_address == address
    place = place.removeprefix("*")
    return host.endswith(place if place.startswith(".") else f".{place}") or host == place


def _split(entry: str) -> tuple[str, str]:
    """Host and port of an entry; addresses of IPv6 have brackets where a port follows."""
    if _address(entry) is not None:
        return entry, ""
    host, _, port = entry.rpartition(":")
    if not host or not port.isdecimal():
        host, port = entry, ""
    return host.removeprefix("[").removesuffix("]"), port


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper(), "") or environment.get(name, "")
