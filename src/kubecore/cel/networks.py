"""Functions of URLs, IP addresses and CIDR blocks."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from kubecore.objects.fields import go_quote

from .declarations import function, method
from .values import Opaque

_URL, _IP, _CIDR = "kubernetes.URL", "net.IP", "net.CIDR"
_HEX_DIGITS = re.compile("[0-9a-fA-F]+")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def _url(text: str) -> Any:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        problem = "invalid URI for request" if text else "empty url"
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": {problem}')
    return Opaque(kind=_URL, text=text)


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
        problem = f"ParseAddr({go_quote(text)}): {_address_problem(text)}"
        words = "parse error during conversion from string"
        raise ValueError(f"IP Address {go_quote(text)} {words}: {problem}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            raise ValueError(f"IP address {go_quote(text)} with zone value is not allowed")
        if address.ipv4_mapped:
            raise ValueError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return address


def _address_problem(text: str) -> str:
    """What Go's parser reports for an invalid address."""
    first = next((char for char in text if char in ".:%"), "")
    if first == ".":
        return _ipv4_problem(text)
    if first == ":":
        return _ipv6_problem(text)
    return "missing IPv6 address" if first else "unable to parse IP"


def _ipv4_problem(text: str) -> str:
    number, dots = "", 0
    for index, char in enumerate(text):
        if char in "0123456789":
            if number == "0":
                return "IPv4 field has octet with leading zero"
            number += char
            if int(number) > 255:
                return "IPv4 field has value >255"
        elif char != ".":
            return f"unexpected character (at {go_quote(text[index:])})"
        elif not number or index == len(text) - 1:
            return f"IPv4 field must have at least one digit (at {go_quote(text[index:])})"
        elif dots == 3:
            return "IPv4 address too long"
        else:
            number, dots = "", dots + 1
    return "IPv4 address too short"


def _ipv6_problem(text: str) -> str:
    shortened = text.startswith("::")
    position, fields = (2 if shortened else 0), 0
    while position < len(text):
        digits = _HEX_DIGITS.match(text, position)
        rest = text[position:]
        if digits is None:
            return f"each colon-separated field must have at least one digit (at {go_quote(rest)})"
        if len(digits[0]) > 4:
            return f"each group must have 4 or less digits (at {go_quote(rest)})"
        position, fields = digits.end(), fields + 1
        if position < len(text) and text[position] != ":":
            return f"unexpected character, want colon (at {go_quote(text[position:])})"
        position += 1
        if position == len(text):
            return f"colon must be followed by more characters (at {go_quote(text[-1:])})"
        if text[position] == ":":
            if shortened:
                return f"multiple :: in address (at {go_quote(text[position:])})"
            shortened, position = True, position + 1
        if fields == 8 and position < len(text):
            return f"trailing garbage after address (at {go_quote(text[position:])})"
    return "address string too short"


def _ip(text: str) -> Any:
    return Opaque(kind=_IP, text=str(_address(text)))


def _is_ip(text: str) -> bool:
    try:
        _address(text)
    except ValueError:
        return False
    return True


def _is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _network(text: str) -> _Network:
    words = "network address parse error during conversion from string: "
    try:
        if "/" not in text:
            raise ValueError("no '/'")
        return ipaddress.ip_interface(text)
    except ValueError as error:
        # Kubernetes repeats the words in this message, too
        raise ValueError(f"{words}{words}netip.ParsePrefix({go_quote(text)}): {error}") from None


def _cidr(text: str) -> Any:
    return Opaque(kind=_CIDR, text=_network(text).with_prefixlen)


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
    return Opaque(kind=_CIDR, text=_network(block.text).network.with_prefixlen)


def _prefix_length(block: Any) -> int:
    return _network(block.text).network.prefixlen


FUNCTIONS = (
    function("url", "string", run=_url),
    function("isURL", "string", run=_is_url),
    method("getScheme", _URL, run=lambda value: _parts(value).scheme),
    method("getHost", _URL, run=_host),
    method("getHostname", _URL, run=_hostname),
    method("getPort", _URL, run=_port),
    method("getEscapedPath", _URL, run=lambda value: _parts(value).path),
    method("getQuery", _URL, run=_query),
    function("ip", "string", run=_ip),
    function("isIP", "string", run=_is_ip),
    function("ip.isCanonical", "string", run=_is_canonical),
    method("family", _IP, run=lambda value: _address(value.text).version),
    method("isUnspecified", _IP, run=lambda value: _address(value.text).is_unspecified),
    method("isLoopback", _IP, run=lambda value: _address(value.text).is_loopback),
    method("isLinkLocalUnicast", _IP, run=lambda value: _address(value.text).is_link_local),
    method(
        "isLinkLocalMulticast",
        _IP,
        run=lambda value: _address(value.text) in _link_local_multicast(value),
    ),
    method(
        "isGlobalUnicast",
        _IP,
        run=lambda value: (
            not (
                _address(value.text).is_multicast
                or _address(value.text).is_unspecified
                or _address(value.text).is_loopback
                or _address(value.text).is_link_local
            )
        ),
    ),
    function("string", _IP, run=lambda value: value.text),
    function("cidr", "string", run=_cidr),
    function("isCIDR", "string", run=_is_cidr),
    method("containsIP", _CIDR, _IP, run=_contains_ip),
    method("containsIP", _CIDR, "string", run=_contains_ip),
    method("containsCIDR", _CIDR, _CIDR, run=_contains_cidr),
    method("containsCIDR", _CIDR, "string", run=_contains_cidr),
    method("ip", _CIDR, run=lambda value: _ip(str(_network(value.text).ip))),
    method("masked", _CIDR, run=_masked),
    method("prefixLength", _CIDR, run=_prefix_length),
)


def _link_local_multicast(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network("224.0.0.0/24" if _address(value.text).version == 4 else "ff02::/16")
