"""Functions of quantities (``quantity('1Gi').isGreaterThan(...)``) and semantic versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kubecore.objects.fields import go_quote
from kubecore.objects.quantity import Quantity

from .declarations import function, method
from .values import Opaque

_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_RELEASE_PART = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-({_RELEASE_PART}(?:\.{_RELEASE_PART})*))?"
    r"(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?\Z",
    re.ASCII,
)


def _quantity(text: str) -> Any:
    return Opaque(kind=_QUANTITY, text=str(Quantity.parse(text)))


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def _parsed(value: Any) -> Quantity:
    return Quantity.parse(value.text)


def _compare(left: Any, right: Any) -> int:
    a, b = _parsed(left), _parsed(right)
    return (a > b) - (a < b)


def _is_integer(value: Any) -> bool:
    try:
        _as_integer(value)
    except ValueError:
        return False
    return True


def _as_integer(value: Any) -> int:
    quantity = _parsed(value)
    if quantity.milli_value != quantity.value * 1000 or abs(quantity.value) >= 2**63:
        raise ValueError("cannot convert value to integer")
    return quantity.value


def _as_float(value: Any) -> float:
    return _parsed(value).milli_value / 1000


def _sign(value: Any) -> int:
    milli = _parsed(value).milli_value
    return (milli > 0) - (milli < 0)


def _add(left: Any, right: Any) -> Any:
    return Opaque(kind=_QUANTITY, text=str(_parsed(left) + _other(right)))


def _sub(left: Any, right: Any) -> Any:
    return Opaque(kind=_QUANTITY, text=str(_parsed(left) - _other(right)))


def _other(value: Any) -> Quantity:
    return Quantity.parse(value) if isinstance(value, int) else _parsed(value)


def _semver(text: str, normalize: bool = False) -> Any:
    if normalize:
        text = _normalized(text)
    if not _VERSION.match(text):
        raise ValueError(_version_problem(text))
    return Opaque(kind=_SEMVER, text=text)


def _version_problem(text: str) -> str:
    """What Go's parser reports for an invalid semantic version."""
    parts = text.split(".", 2)
    if not text:
        return "Version string empty"
    if len(parts) != 3:
        return "No Major.Minor.Patch elements found"
    core, _, build = parts[2].partition("+")
    patch, dash, release = core.partition("-")
    for name, number in (("major", parts[0]), ("minor", parts[1]), ("patch", patch)):
        if not re.fullmatch("[0-9]*", number):
            return f"Invalid character(s) found in {name} number {go_quote(number)}"
        if len(number) > 1 and number[0] == "0":
            return f"{name.title()} number must not contain leading zeroes {go_quote(number)}"
        if not number:
            return 'strconv.ParseUint: parsing "": invalid syntax'
    for part in release.split(".") if dash else ():
        if not part:
            return "prerelease is empty"
        if not re.fullmatch("[0-9A-Za-z-]+", part):
            return f"Invalid character(s) found in prerelease {go_quote(part)}"
        if part.isdigit() and len(part) > 1 and part[0] == "0":
            return f"Numeric PreRelease version must not contain leading zeroes {go_quote(part)}"
    wrong = next((part for part in build.split(".") if not re.fullmatch("[0-9A-Za-z-]+", part)), "")
    return (
        f"Invalid character(s) found in build meta data {go_quote(wrong)}"
        if wrong
        else "build meta data is empty"
    )


def _normalized(text: str) -> str:
    """Without a leading v and leading zeros, filled up to three parts."""
    core, separator, rest = text.removeprefix("v"), "", ""
    if found := re.search(r"[-+]", core):
        core, separator, rest = core[: found.start()], found[0], core[found.end() :]
    parts = [part.lstrip("0") or "0" for part in core.split(".")]
    return ".".join(parts + ["0"] * (3 - len(parts))) + separator + rest


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except ValueError:
        return False
    return True


def _rank(value: Any) -> tuple[Any, ...]:
    """A sort key: a pre-release is less than its release, a numeric identifier less than an alphanumeric
    one.
    """
    found = _VERSION.match(value.text)
    if found is None:
        return ()
    numbers = tuple(int(found[index]) for index in (1, 2, 3))
    if not found[4]:
        return (*numbers, 1)
    words = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in found[4].split("."))
    return (*numbers, 0, words)


def _compare_versions(left: Any, right: Any) -> int:
    a, b = _rank(left), _rank(right)
    return (a > b) - (a < b)


def _part(index: int) -> Callable[[Any], int]:
    def part(value: Any) -> int:
        return int(_rank(value)[index])

    return part


FUNCTIONS = (
    function("quantity", "string", run=_quantity),
    function("isQuantity", "string", run=_is_quantity),
    method("isGreaterThan", _QUANTITY, _QUANTITY, run=lambda a, b: _compare(a, b) > 0),
    method("isLessThan", _QUANTITY, _QUANTITY, run=lambda a, b: _compare(a, b) < 0),
    method("compareTo", _QUANTITY, _QUANTITY, run=_compare),
    method("isInteger", _QUANTITY, run=_is_integer),
    method("asInteger", _QUANTITY, run=_as_integer),
    method("asApproximateFloat", _QUANTITY, run=_as_float),
    function("sign", _QUANTITY, run=_sign),
    method("add", _QUANTITY, _QUANTITY, run=_add),
    method("add", _QUANTITY, "int", run=_add),
    method("sub", _QUANTITY, _QUANTITY, run=_sub),
    method("sub", _QUANTITY, "int", run=_sub),
    function("semver", "string", run=_semver),
    function("semver", "string", "bool", run=_semver),
    function("isSemver", "string", run=_is_semver),
    function("isSemver", "string", "bool", run=_is_semver),
    method("isGreaterThan", _SEMVER, _SEMVER, run=lambda a, b: _compare_versions(a, b) > 0),
    method("isLessThan", _SEMVER, _SEMVER, run=lambda a, b: _compare_versions(a, b) < 0),
    method("compareTo", _SEMVER, _SEMVER, run=_compare_versions),
    method("major", _SEMVER, run=_part(0)),
    method("minor", _SEMVER, run=_part(1)),
    method("patch", _SEMVER, run=_part(2)),
)
