"""Checks that claims, classes and slices of devices share: names, selectors, tolerations, parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from kindling.apiserver.kinds.core.volumes.sources import csi_driver_name
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import messages
from kindling.apiserver.kinds.machinery.rules import Judge
from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)

MAX_REQUESTS = 32
MAX_SELECTORS = 32
MAX_CONFIGS = 32
_MAX_POOL_NAME = 253
_MAX_ID = 32
_MAX_EXPRESSION = 10 * 1024
_MAX_EXPRESSIONS = 64 * 1024
_MAX_PARAMETERS = 10 * 1024
EFFECTS = ("NoExecute", "NoSchedule", "None")

DRIVER = csi_driver_name
"""Drivers of devices have names like those of storage drivers."""


def driver(name: str = "driver") -> f.Field:
    """The field that names a driver."""
    return f.always(name, "", DRIVER)


def label(name: str) -> f.Field:
    """A field that is a DNS label, and none where it is empty."""
    return f.always(name, "", f.LABEL)


def pool_name(path: FieldPath, name: str) -> Iterator[FieldError]:
    """A pool: one or more subdomains, separated by slashes."""
    if not name:
        yield required(path)
        return
    if len(name) > _MAX_POOL_NAME:
        yield too_long(path, _MAX_POOL_NAME)
    for part in name.split("/"):
        yield from messages(path, part, names.is_dns1123_subdomain)


def _identifier(path: FieldPath, name: str) -> Iterator[FieldError]:
    if len(name) > _MAX_ID:
        yield too_long(path, _MAX_ID)
    yield from messages(path, name, names.is_c_identifier)


def qualified_name(path: FieldPath, name: str) -> Iterator[FieldError]:
    """The name of an attribute or capacity: an identifier, with or without a driver's domain."""
    parts = name.split("/")
    if len(parts) == 1:
        yield from _identifier(path, name)
    elif len(parts) > 2:
        yield invalid(path, name, "must not contain more than one slash")
    else:
        domain, rest = parts
        if domain:
            yield from DRIVER(path, domain)
        else:
            yield invalid(path, "", "the domain must not be empty")
        if rest:
            yield from _identifier(path, rest)
        else:
            yield invalid(path, "", "the name must not be empty")


def fully_qualified_name(path: FieldPath, name: str) -> Iterator[FieldError]:
    """The name of an attribute with its domain."""
    yield from qualified_name(path, name)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(path, name, text)


def at_most(limit: int, *rows: f.Row) -> f.Check:
    """A list whose elements are judged by `rows`, unless there are too many."""
    check, bounded = f.items(*rows), f.fewer(limit)
    return lambda path, value: bounded(path, value) or check(path, value)


def unique(limit: int | None, key: Callable[[Any], Any], *rows: f.Row) -> f.Check:
    """Such a list, in which no two elements have the same key."""
    check = f.items(*rows)

    def judge(path: FieldPath, value: list[Any]) -> Iterator[FieldError]:
        if limit is not None and len(value) > limit:
            yield too_many(path, len(value), limit)
            return
        yield from check(path, value)
        seen = set()
        for position, item in enumerate(value):
            if (found := key(item)) in seen:
                yield duplicate(path.index(position), found)
            seen.add(found)

    return judge


def by(name: str) -> Callable[[JsonObject], Any]:
    """Elements are told apart by this field."""
    return lambda item: item.get(name) or ""


def itself(item: Any) -> Any:
    """Elements are told apart by their value."""
    return item


def _expression(path: FieldPath, text: str) -> Iterator[FieldError]:
    if len(text.encode()) > _MAX_EXPRESSION:
        yield too_long(path, _MAX_EXPRESSION)
        return
    from kubecore.cel import CompileError, Environment  # noqa: PLC0415 (loads the parser)

    try:
        program = Environment({"device": "dyn"}).compile(text)
    except CompileError as error:
        yield invalid(path, text, f"compilation failed: {error}")
        return
    if program.return_type not in ("bool", "dyn"):
        yield invalid(path, text, "must evaluate to bool or the unknown type, not " + program.return_type)


def bounded(judge: Judge) -> Judge:
    """The rules `judge`, unless an object's expressions are so long that nobody else would be served.

    Everybody who may create claims may write hundreds of them, and a kilobyte takes milliseconds.
    """

    def check(obj: JsonObject) -> Iterable[FieldError]:
        if _expression_bytes(obj.get("spec")) > _MAX_EXPRESSIONS:
            text = f"expressions of selectors may have {_MAX_EXPRESSIONS} bytes together"
            return [forbidden(FieldPath("spec"), text)]
        return judge(obj)

    return check


def _expression_bytes(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_expression_bytes, value))
    if not isinstance(value, dict):
        return 0
    cel = value.get("cel")
    text = cel.get("expression") if isinstance(cel, dict) else None
    own = len(text.encode()) if isinstance(text, str) else 0
    # A driver's configuration has no selectors, and may be nested as deep as it likes.
    return own + sum(_expression_bytes(part) for name, part in value.items() if name != "opaque")


_SELECTOR = f.within(f.must("cel", f.always("expression", "", _expression), given=True))
SELECTORS = at_most(MAX_SELECTORS, _SELECTOR)
"""CEL expressions about one device."""


def _toleration(path: FieldPath, toleration: JsonObject) -> Iterator[FieldError]:
    operator, value, at = toleration.get("operator", ""), toleration.get("value", ""), path.child("operator")
    if operator == "Equal":
        yield from f.LABEL_VALUE(path.child("value"), value)
    elif not operator:
        yield required(at)
    elif operator != "Exists":
        yield not_supported(at, operator, ["Equal", "Exists"])
    elif value:
        yield invalid(path.child("value"), value, "must be empty for operator `Exists`")


TOLERATIONS = f.items(f.may("key", f.QUALIFIED), _toleration, f.may("effect", f.choice(*EFFECTS)))
"""Tolerations of devices' taints."""


def json_object(limit: int) -> f.Check:
    """A document that must be an object of at most `limit` bytes."""

    def check(path: FieldPath, value: Any) -> Iterable[FieldError]:
        if value is None:
            return [required(path)]
        if len(orjson.dumps(value)) > limit:
            return [too_long(path, limit)]
        is_object = isinstance(value, dict)
        return [] if is_object else [invalid(path, "<value omitted>", "must be a valid JSON object")]

    return check


def _parameters(path: FieldPath, opaque: JsonObject) -> Iterable[FieldError]:
    return json_object(_MAX_PARAMETERS)(path.child("parameters"), opaque.get("parameters"))


OPAQUE = f.must("opaque", driver(), _parameters, given=True)
"""Configuration that the server does not understand, for one driver."""


_MAX_CONDITIONS = 4
_CONDITIONS = f.may("bindingConditions", at_most(_MAX_CONDITIONS, f.QUALIFIED))
_FAILURES = f.may("bindingFailureConditions", at_most(_MAX_CONDITIONS, f.QUALIFIED))


def binding_conditions(path: FieldPath, obj: JsonObject) -> Iterator[FieldError]:
    """What a binding waits for and what ends it: both or none, and nothing twice."""
    yield from f.check_fields(obj, path, _CONDITIONS, _FAILURES)
    good, bad = (obj.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions"))
    at, failures = path.child("bindingConditions"), path.child("bindingFailureConditions")
    yield from (duplicate(at.index(i), name) for i, name in enumerate(good) if name in good[:i])
    for position, name in enumerate(bad):
        if name in bad[:position]:
            yield duplicate(failures.index(position), name)
        if name in good:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(failures.index(position), name, text)
    if bad and not good:
        text = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(at, obj.get("bindingConditions"), text)
    if good and not bad:
        text = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(failures, obj.get("bindingFailureConditions"), text)
