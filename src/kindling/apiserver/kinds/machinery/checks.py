"""Checks that many kinds share: numbers, ports, percentages, addresses. No errors: the value is valid."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported, required
from kubecore.objects.quantity import Quantity

NOT_NEGATIVE = "must be greater than or equal to 0"
PORT_RANGE = "must be between 1 and 65535, inclusive"
IMMUTABLE = "field is immutable"
ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
PERCENT = names.regex_message(
    "a valid percent string must be a numeric string followed by an ending '%'", "[0-9]+%", "1%", "93%"
)
_PERCENT = re.compile("[0-9]+%")

_INTEGER = re.compile("[+-]?[0-9]{1,18}", re.ASCII)
_URL_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_LEADING_ZERO = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def are_repeats(values: Iterable[Hashable]) -> Iterator[bool]:
    """Of each value whether it was there before, in the time that one pass takes."""
    seen: set[Hashable] = set()
    for value in values:
        yield value in seen
        seen.add(value)


def not_negative(path: FieldPath, value: Any) -> list[FieldError]:
    """A number that is at least 0; None is fine."""
    if isinstance(value, int) and value < 0:
        return [invalid(path, value, NOT_NEGATIVE)]
    return []


def port(path: FieldPath, value: Any) -> list[FieldError]:
    """A port number."""
    return [] if isinstance(value, int) and 1 <= value <= 65535 else [invalid(path, value, PORT_RANGE)]


def port_or_name(path: FieldPath, value: Any) -> list[FieldError]:
    """A port number or the name of a port."""
    if isinstance(value, str):
        return messages(path, value, names.is_port_name)
    return port(path, value)


def messages(path: FieldPath | str, value: Any, check: Callable[[Any], Iterable[str]]) -> list[FieldError]:
    """An Invalid error for each message of a name rule."""
    return [invalid(path, value, message) for message in check(value)]


def one_of(path: FieldPath | str, value: Any, allowed: Iterable[str]) -> list[FieldError]:
    """A value of a fixed set, listed in the given order."""
    known = list(allowed)
    return [] if value in known else [not_supported(path, value, known)]


def is_percent(value: Any) -> bool:
    """A string such as ``25%``."""
    return isinstance(value, str) and bool(_PERCENT.fullmatch(value))


def int_or_percent(path: FieldPath, value: Any) -> list[FieldError]:
    """A number that is at least 0, or a percentage."""
    if isinstance(value, str):
        return [] if is_percent(value) else [invalid(path, value, PERCENT)]
    return not_negative(path, value)


def at_most_100_percent(path: FieldPath, value: Any) -> list[FieldError]:
    """A percentage of at most 100 %."""
    if is_percent(value) and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def scaled(value: Any) -> int:
    """The number in an int-or-percent value."""
    if is_percent(value):
        return int(value[:-1])
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else 0
    return value if isinstance(value, int) else 0


def immutable(path: FieldPath | str, new: Any, old: Any) -> list[FieldError]:
    """A value that may not change."""
    return [] if new == old else [invalid(path, new, IMMUTABLE)]


def parse_address(text: Any) -> Address | None:
    """An IP address, or None."""
    try:
        return ipaddress.ip_address(text) if isinstance(text, str) and "%" not in text else None
    except ValueError:
        return None


def parse_network(text: Any) -> Network | None:
    """A block of addresses (host bits are forgiven), or None."""
    if not isinstance(text, str) or "/" not in text or not text.rpartition("/")[2].isdigit():
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_mapped(value: Address) -> bool:
    """Whether an IPv6 address stands for an IPv4 one."""
    return isinstance(value, ipaddress.IPv6Address) and value.ipv4_mapped is not None


def address(path: FieldPath, value: Any) -> list[FieldError]:
    """An IP address that everybody reads alike, perhaps not in its canonical form."""
    parsed = parse_address(value)
    if parsed is None:
        zeros = isinstance(value, str) and parse_address(_LEADING_ZERO.sub("", value)) is not None
        return [invalid(path, value, "must not have leading 0s" if zeros else ADDRESS)]
    if _is_mapped(parsed):
        return [invalid(path, value, "must not be an IPv4-mapped IPv6 address")]
    return []


def not_an_address(path: FieldPath, value: Any) -> list[FieldError]:
    """A host name, which an IP address is not."""
    text = "must be a DNS name, not an IP address"
    return [] if parse_address(value) is None else [invalid(path, value, text)]


def cidr(path: FieldPath, value: Any) -> list[FieldError]:
    """A block of addresses that everybody reads alike, perhaps not in its canonical form."""
    if isinstance(value, str) and _LEADING_ZERO.search(value) and parse_network(_LEADING_ZERO.sub("", value)):
        return [invalid(path, value, "must not have leading 0s in IP or prefix length")]
    network = parse_network(value)
    if network is None:
        return [invalid(path, value, CIDR)]
    if _is_mapped(network.network_address):
        return [invalid(path, value, "must not have an IPv4-mapped IPv6 address")]
    if ipaddress.ip_interface(value).ip != network.network_address:
        return [invalid(path, value, "must not have bits set beyond the prefix length")]
    return []


def canonical_cidr(path: FieldPath, value: Any) -> list[FieldError]:
    """A block of addresses in its canonical form."""
    found = cidr(path, value)
    if not found and str(parse_network(value)) != value:
        return [invalid(path, value, f'must be in canonical form ("{parse_network(value)}")')]
    return found


def remote_address(path: FieldPath, value: str) -> list[FieldError]:
    """An address that can stand for another machine: not unspecified, loopback, link-local or multicast."""
    parsed = parse_address(_LEADING_ZERO.sub("", value))
    if parsed is None:
        return [invalid(path, value, "must be a valid IP address")]
    found = []
    if parsed.is_unspecified:
        found.append(invalid(path, value, f"may not be unspecified ({value})"))
    if parsed.is_loopback:
        found.append(invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if parsed.is_link_local:
        found.append(invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if parsed.is_multicast and parsed.packed[0] in (224, 255) and value.startswith(("224.0.0.", "ff02:")):
        text = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        found.append(invalid(path, value, text))
    return found


def domain_prefixed_path(path: FieldPath, value: str) -> list[FieldError]:
    """A name with the domain of whoever gave it, such as ``acme.io/foo``."""
    if not value:
        return [required(path)]
    host, _, rest = value.partition("/")
    if not host or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    found = messages(path, host, names.is_dns1123_subdomain)
    if not re.fullmatch(_URL_PATH, rest, re.ASCII):
        found.append(invalid(path, rest, names.regex_message("Invalid path", _URL_PATH)))
    return found


def quantity(path: FieldPath, value: Any) -> list[FieldError]:
    """An amount that is not negative."""
    try:
        parsed = Quantity.parse(value)
    except ValueError:
        return []
    return [invalid(path, str(value), NOT_NEGATIVE)] if parsed < Quantity.parse("0") else []


def amount(value: Any) -> Quantity:
    """The amount of a quantity; zero if it is invalid."""
    try:
        return Quantity.parse(value if value is not None else "0")
    except ValueError:
        return Quantity.parse("0")
