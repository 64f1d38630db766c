"""Functions of URLs, IP addresses and CIDR blocks."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from .declarations import STRINGS, T, function, method
from .opaque_types import opaque

_URL, _IP, _CIDR = opaque("kubernetes.URL"), opaque("net.IP"), opaque("net.CIDR")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def _url(text: str) -> Any:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        problem = "invalid URI for request" if text else "empty url"
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": {problem}')
    return _URL.make(text=text)


def _is_url(text: str) -> bool:
    try:
        _url(text)
    except ValueError:
        return False
    return True


def _parts(value: Any) -> SplitResult:
    return urlsplit(str(value.text))


def _host(value: Any) -> str:
    return _parts(value).netloc.rpartition("@")[2]


def _hostname(value: Any) -> str:
    host = _host(value)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _port(value: Any) -> str:
    tail = _host(value).rpartition("]")[2]
    return tail.rpartition(":")[2] if ":" in tail else ""


def _query(value: Any) -> dict[str, list[str]]:
    return parse_qs(_parts(value).query, keep_blank_values=True)


def _address(text: str) -> _Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"IP Address {text!r} parse error during conversion from string") from None
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.scope_id):
        raise ValueError(f"IP Address {text!r} may not be IPv4-mapped or have a zone")
    return address


def _ip(text: str) -> Any:
    return _IP.make(text=str(_address(text)))


def _is_ip(text: str) -> bool:
    try:
        _address(text)
    except ValueError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _network(text: str) -> _Network:
    if "/" not in text:
        raise ValueError(f"network address parse error during conversion from string: {text!r}")
    return ipaddress.ip_interface(text)


def _cidr(text: str) -> Any:
    return _CIDR.make(text=_network(text).with_prefixlen)


def _is_cidr(text: str) -> bool:
    try:
        _network(text)
    except ValueError:
        return False
    return True


def _contains_ip(block: Any, address: Any) -> bool:
    text = address if isinstance(address, str) else address.text
    return _address(text) in _network(block.text).network


def _contains_cidr(block: Any, other: Any) -> bool:
    outer = _network(block.text).network
    inner = _network(other if isinstance(other, str) else other.text).network
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def _masked(block: Any) -> Any:
    return _CIDR.make(text=_network(block.text).network.with_prefixlen)


def _prefix_length(block: Any) -> int:
    return _network(block.text).network.prefixlen


_U, _I, _C = _URL.type, _IP.type, _CIDR.type
FUNCTIONS = (
    function("url", T.STRING, returns=_U, run=_url),
    function("isURL", T.STRING, returns=T.BOOL, run=_is_url),
    method("getScheme", _U, returns=T.STRING, run=lambda value: _parts(value).scheme),
    method("getHost", _U, returns=T.STRING, run=_host),
    method("getHostname", _U, returns=T.STRING, run=_hostname),
    method("getPort", _U, returns=T.STRING, run=_port),
    method("getEscapedPath", _U, returns=T.STRING, run=lambda value: _parts(value).path),
    method("getQuery", _U, returns=T.Map(T.STRING, STRINGS), run=_query),
    function("ip", T.STRING, returns=_I, run=_ip),
    function("isIP", T.STRING, returns=T.BOOL, run=_is_ip),
    function("ip.isCanonical", T.STRING, returns=T.BOOL, run=_is_canonical),
    method("family", _I, returns=T.INT, run=lambda value: _address(value.text).version),
    method("isUnspecified", _I, returns=T.BOOL, run=lambda value: _address(value.text).is_unspecified),
    method("isLoopback", _I, returns=T.BOOL, run=lambda value: _address(value.text).is_loopback),
    method("isLinkLocalUnicast", _I, returns=T.BOOL, run=lambda value: _address(value.text).is_link_local),
    method(
        "isLinkLocalMulticast",
        _I,
        returns=T.BOOL,
        run=lambda value: _address(value.text) in _link_local_multicast(value),
    ),
    method(
        "isGlobalUnicast",
        _I,
        returns=T.BOOL,
        run=lambda value: (
            not (
                _address(value.text).is_multicast
                or _address(value.text).is_unspecified
                or _address(value.text).is_loopback
                or _address(value.text).is_link_local
            )
        ),
    ),
    function("string", _I, returns=T.STRING, run=lambda value: value.text),
    function("cidr", T.STRING, returns=_C, run=_cidr),
    function("isCIDR", T.STRING, returns=T.BOOL, run=_is_cidr),
    method("containsIP", _C, _I, returns=T.BOOL, run=_contains_ip),
    method("containsIP", _C, T.STRING, returns=T.BOOL, run=_contains_ip),
    method("containsCIDR", _C, _C, returns=T.BOOL, run=_contains_cidr),
    method("containsCIDR", _C, T.STRING, returns=T.BOOL, run=_contains_cidr),
    method("ip", _C, returns=_I, run=lambda value: _ip(str(_network(value.text).ip))),
    method("masked", _C, returns=_C, run=_masked),
    method("prefixLength", _C, returns=T.INT, run=_prefix_length),
)


def _link_local_multicast(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network("224.0.0.0/24" if _address(value.text).version == 4 else "ff02::/16")
