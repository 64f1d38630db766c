"""Kubernetes quantities: ``500m``, ``1.5Gi``, ``12e6``.

Every quantity is a whole number of nano-units (finer values are rounded away from zero when read), so
amounts are exact integers and comparing or adding them is cheap. A quantity keeps the format it was written
in (DecimalSI, BinarySI or DecimalExponent) and prints itself in canonical form: no fraction, the largest
suffix without loss of precision. The API server keeps some non-canonical spellings as they were written
(``+1``, ``1E3``); `Quantity.parse` follows it, because objects are stored as they are printed.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final

DECIMAL_SI: Final = "DecimalSI"
DECIMAL_EXPONENT: Final = "DecimalExponent"
BINARY_SI: Final = "BinarySI"

FORMAT_MESSAGE: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX_MESSAGE: Final = "unable to parse quantity's suffix"

_NANO: Final = 10**9
_MAX_CHARS: Final = 512
_MAX_BINARY: Final = (2**63 - 1) * _NANO
_GRAMMAR: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)")
_DECIMAL_SUFFIXES: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}
# Beyond this many digits Kubernetes uses arbitrary precision; it matters for the printed form only.
_FAST_DIGITS: Final = 18
_FAST_BINARY_DIGITS: Final = 15


@total_ordering
class Quantity:
    """An immutable amount. Equality and order are by value, whatever the notation."""

    __slots__ = ("_text", "format", "nano")

    def __init__(self, nano: int, format: str = DECIMAL_SI, text: str = "") -> None:
        """A quantity of `nano` nano-units, printed as `text` where given."""
        self.nano = nano
        self.format = format
        self._text = text

    @classmethod
    def parse(cls, value: str | int | float | Quantity) -> Quantity:
        """Read a quantity; numbers count as if written out. Raises ValueError with the API's message."""
        if isinstance(value, Quantity):
            return value
        if isinstance(value, bool):
            raise ValueError(FORMAT_MESSAGE)
        text = value.strip() if isinstance(value, str) else str(value)
        if len(text) > _MAX_CHARS:
            raise ValueError(FORMAT_MESSAGE)  # and longer text would make huge numbers and cache keys
        return _parse(text)

    @classmethod
    def of(cls, value: int, format: str = DECIMAL_SI) -> Quantity:
        """The whole number `value`."""
        return cls(value * _NANO, format)

    @classmethod
    def of_milli(cls, value: int, format: str = DECIMAL_SI) -> Quantity:
        """`value` thousandths."""
        return cls(value * 10**6, format)

    @property
    def value(self) -> int:
        """The amount as an integer, rounded up."""
        return -(-self.nano // _NANO)

    @property
    def milli_value(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.nano // 10**6)

    @property
    def fraction(self) -> Fraction:
        """The exact amount."""
        return Fraction(self.nano, _NANO)

    def __float__(self) -> float:
        return self.nano / _NANO

    @property
    def is_zero(self) -> bool:
        """Whether the amount is 0."""
        return self.nano == 0

    @property
    def is_integer(self) -> bool:
        """Whether the amount has no fraction."""
        return self.nano % _NANO == 0

    def rounded_up(self, exponent: int) -> Quantity:
        """The amount rounded away from zero to a multiple of ten to the `exponent` (-9 to 0)."""
        unit = 10 ** (9 + exponent)
        if self.nano % unit == 0:
            return self
        magnitude = -(-abs(self.nano) // unit) * unit
        return Quantity(magnitude if self.nano > 0 else -magnitude, self.format)

    def canonical(self) -> str:
        """The amount in canonical form, even where it was read in another spelling."""
        return _canonical(self.nano, self.format)

    def __str__(self) -> str:
        return self._text or _canonical(self.nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, other.format if self.nano == 0 else self.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, other.format if self.nano == 0 else self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nano * factor, self.format)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, DECIMAL_SI, "0")
    match = _GRAMMAR.fullmatch(text) if text else None
    if match is None:
        raise ValueError(FORMAT_MESSAGE)
    sign, whole, decimals, suffix = match.groups(default="")
    notation, exponent = _interpret(suffix)
    whole = whole.lstrip("0") or "0"
    digits = whole + decimals
    nano = _nano(int(digits), len(decimals), exponent, binary=notation == BINARY_SI)
    if notation == BINARY_SI:
        nano = min(nano, _MAX_BINARY)
    kept = text if _is_kept(whole, decimals, notation, exponent) else ""
    if notation == BINARY_SI and 0 < nano < _NANO:
        notation = DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, notation, kept)


def _interpret(suffix: str) -> tuple[str, int]:
    """The notation and the exponent (of 10, or of 2) that a suffix stands for."""
    if suffix in _DECIMAL_SUFFIXES:
        return DECIMAL_SI, _DECIMAL_SUFFIXES[suffix]
    if suffix in _BINARY_SUFFIXES:
        return BINARY_SI, _BINARY_SUFFIXES[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None or abs(int(match[1])) >= 2**31:
        raise ValueError(SUFFIX_MESSAGE)
    return DECIMAL_EXPONENT, int(match[1])


def _nano(digits: int, decimals: int, exponent: int, *, binary: bool) -> int:
    """``digits`` with the point `decimals` from the right, times the suffix, in nano-units rounded up."""
    if binary:
        return -(-(digits << exponent) * _NANO // int(10**decimals))
    shift = 9 + exponent - decimals
    if digits == 0:
        return 0
    if shift >= 0:
        return digits * int(10 ** min(shift, 400))  # a huge exponent must not exhaust memory
    return -(-digits // int(10**-shift)) if -shift < 400 else 1


def _is_kept(whole: str, decimals: str, notation: str, exponent: int) -> bool:
    """Whether the API server prints this quantity as it was written.

    It keeps these spellings without computing the canonical form.
    """
    digits = whole + decimals
    if notation == BINARY_SI:
        precision = _FAST_BINARY_DIGITS - len(whole) - int(exponent * 3 / 10) - 1
        return not decimals and precision >= 0 and int(whole) & 7 != 0
    scale = exponent - len(decimals)
    if len(digits) > _FAST_DIGITS or scale < -9:
        return False
    return scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"


@lru_cache(maxsize=4096)
def _canonical(nano: int, notation: str) -> str:
    if nano == 0:
        return "0"
    if notation == BINARY_SI and abs(nano) >= 1024 * _NANO:
        return _canonical_binary(nano)
    exponent = -9
    top = 10**6 if notation == DECIMAL_EXPONENT else 18
    while nano % 1000 == 0 and exponent < top:
        nano //= 1000
        exponent += 3
    if notation == DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_DECIMAL_NAMES[exponent]}"


def _canonical_binary(nano: int) -> str:
    magnitude = -(-abs(nano) // _NANO)
    exponent = 0
    while magnitude % 1024 == 0 and exponent < 60:
        magnitude //= 1024
        exponent += 10
    return f"{'-' if nano < 0 else ''}{magnitude}{_BINARY_NAMES.get(exponent, '')}"
