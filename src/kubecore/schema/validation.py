"""Validation of values against a schema, with the error messages of Kubernetes.

A schema becomes a chain of small checks per node, compiled when the node is first met. Each gets the
value, its path, and the list of errors to append to. Two paths lead to a value: the *name* by which
messages mention it (which starts at the validated value), and the field path under which errors are
filed (which starts at the document); they differ only for defaults inside schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.objects.fields import FieldError, FieldPath, invalid, required, too_many, type_invalid
from kubecore.objects.fields import not_supported as unsupported

from .formats import STRING_FORMATS
from .model import Schema
from .ratcheting import equal_json, unchanged_names
from .scalars import NO_PATH, Check, Findings, number_checks, string_checks


def validate(
    document: Any, schema: Schema, path: FieldPath | None = None, *, old: Any = None
) -> list[FieldError]:
    """The errors of `document` against `schema`, in the order in which they are found.

    `path` is put before the paths of all errors, but not into their texts. Errors of values that are the
    same in `old`, the document that is replaced, are left out (ratcheting).
    """
    errors = Findings()
    schema.derive(_validator)(document, "", errors)
    if errors and old is not None:
        errors = Findings(unchanged=unchanged_names(document, old, schema))
        schema.derive(_validator)(document, "", errors)
    if path is None or not errors:
        return errors
    return [
        error
        if error.field == NO_PATH
        else FieldError(error.type, _under(path, error.field), error.bad_value, error.detail)
        for error in errors
    ]


def _under(path: FieldPath, name: str) -> str:
    if not name:
        return str(path)
    return f"{path}{name}" if name.startswith("[") else f"{path}.{name}"


def json_type(value: Any) -> str:
    """The JSON schema type of a value, as error messages name it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _validator(schema: Schema) -> Check:
    """All checks of a node, in the order in which their errors are reported."""
    type_check = _type_check(schema)
    enum_check = _enum_check(schema)
    by_kind: dict[type, tuple[Check, ...]] = {}

    def check(value: Any, name: str, errors: Findings) -> None:
        if value is None:
            type_check(value, name, errors)
            enum_check(value, name, errors)
            return
        checks = by_kind.get(type(value))
        if checks is None:
            checks = by_kind[type(value)] = tuple(_checks_for(schema, type(value), type_check, enum_check))
        before = len(errors)
        for each in checks:
            each(value, name, errors)
        if name in errors.unchanged:
            del errors[before:]

    return check


def _checks_for(schema: Schema, kind: type, type_check: Check, enum_check: Check) -> Iterator[Check]:
    """The checks that apply to values of this Python type."""
    raw = schema.raw
    if not _type_accepts_always(schema, kind):
        yield type_check
    if any(raw.get(key) for key in ("allOf", "anyOf", "oneOf", "not")):
        yield from _combination_checks(schema)
    if kind is str:
        yield from string_checks(schema)
    elif kind in (int, float):
        yield from number_checks(schema)
    elif kind is list:
        yield from _list_checks(schema)
    if raw.get("enum") is not None:
        yield enum_check
    if kind is dict:
        yield from _object_checks(schema)


_PYTHON_TYPES: dict[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
}


def _type_accepts_always(schema: Schema, kind: type) -> bool:
    if schema.int_or_string:
        return kind in (int, str)
    if not schema.type:
        return True
    if kind is str and schema.format in STRING_FORMATS:
        return False
    return _PYTHON_TYPES.get(schema.type) is kind or (schema.type == "number" and kind in (int, float))


def _type_check(schema: Schema) -> Check:
    """The declared type, null, and the string formats."""
    expected = "integer,string" if schema.int_or_string else schema.type
    format_ok = STRING_FORMATS.get(schema.format) if schema.type == "string" else None

    def check(value: Any, name: str, errors: Findings) -> None:
        if not expected or (value is None and schema.nullable):
            return
        actual = json_type(value)
        if actual in expected.split(","):
            if format_ok is not None and not format_ok(value):
                errors.append(_wrong_type(name, schema.format, value, value))
            return
        whole = isinstance(value, float) and value.is_integer()
        if (actual == "integer" and expected == "number") or (whole and "integer" in expected):
            return
        errors.append(_wrong_type(name, expected, actual, actual))

    return check


def _wrong_type(name: str, expected: str, value: Any, shown: str) -> FieldError:
    return type_invalid(name, value, f'{name} in body must be of type {expected}: "{shown}"')


def _enum_check(schema: Schema) -> Check:
    allowed = schema.raw.get("enum")

    def check(value: Any, name: str, errors: Findings) -> None:
        if allowed is not None and not any(equal_json(value, each) for each in allowed):
            if value is None and schema.nullable:
                return
            errors.append(unsupported(name, value, [_plain(each) for each in allowed]))

    return check


def _plain(value: Any) -> str:
    """An enum value as it is listed in messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "<nil>"}[value]
    return str(value)


def _list_checks(schema: Schema) -> Iterator[Check]:
    items, raw = schema.items, schema.raw
    if items is not None:

        def check_items(value: list[Any], name: str, errors: Findings) -> None:
            check = items.derive(_validator)
            for index, item in enumerate(value):
                check(item, f"{name}[{index}]", errors)

        yield check_items
    fewest, most = raw.get("minItems"), raw.get("maxItems")

    if fewest or most is not None:

        def check_count(value: list[Any], name: str, errors: Findings) -> None:
            count = len(value)
            if fewest and count < fewest:
                errors.append(invalid(name, count, f"{name} in body should have at least {fewest} items"))
            if most is not None and count > most:
                errors.append(too_many(name, count, most))

        yield check_count


def _object_checks(schema: Schema) -> Iterator[Check]:
    raw = schema.raw
    fewest, most = raw.get("minProperties"), raw.get("maxProperties")
    properties, extra, names = schema.properties, schema.additional_properties, schema.required
    embedded_root = schema.embedded_resource
    closed = raw.get("additionalProperties") is False

    def check(value: dict[str, Any], name: str, errors: Findings) -> None:
        count = len(value)
        if fewest and count < fewest:
            errors.append(invalid(name, count, f"{name} in body should have at least {fewest} properties"))
            return
        if most is not None and count > most:
            errors.append(too_many(name, count, most))
            return
        prefix = f"{name}." if name else ""
        for key, child in value.items():
            child_schema = properties.get(key)
            if child_schema is None:
                if closed:
                    errors.append(
                        invalid(f"{prefix}{key}", child, f"{prefix}{key} in body is a forbidden property")
                    )
                    continue
                child_schema = extra
                if child_schema is None:
                    continue
            elif embedded_root and key == "metadata" and not _narrows_metadata(raw):
                continue
            child_schema.derive(_validator)(child, f"{prefix}{key}", errors)
        errors.extend(required(f"{prefix}{key}") for key in names if key not in value)

    yield check


def _narrows_metadata(raw: dict[str, Any]) -> bool:
    """ObjectMeta has its own validation; check only what a schema restricts further (names)."""
    return bool(((raw.get("properties") or {}).get("metadata") or {}).get("properties"))


def _combination_checks(schema: Schema) -> Iterator[Check]:
    def branches(keyword: str) -> list[Schema]:
        return [schema.branch(each) for each in schema.raw.get(keyword) or ()]

    if any_of := branches("anyOf"):
        yield _any_of_check(any_of)
    if one_of := branches("oneOf"):
        yield _one_of_check(one_of)
    if all_of := branches("allOf"):
        yield _all_of_check(all_of)
    forbidden = schema.raw.get("not")
    if isinstance(forbidden, dict):
        yield _not_check(schema.branch(forbidden))


def _outcome(branch: Schema, value: Any, name: str, errors: Findings) -> list[FieldError]:
    found = Findings(unchanged=errors.unchanged)
    branch.derive(_validator)(value, name, found)
    return found


def _combined(name: str, text: str) -> FieldError:
    return invalid(NO_PATH, "", f'"{name}" must {text}')


def _any_of_check(branches: list[Schema]) -> Check:
    def check(value: Any, name: str, errors: Findings) -> None:
        outcomes: list[list[FieldError]] = []
        for branch in branches:
            found = _outcome(branch, value, name, errors)
            if not found:
                return
            outcomes.append(found)
        errors.append(_combined(name, "validate at least one schema (anyOf)"))
        errors.extend(outcomes[0])

    return check


def _one_of_check(branches: list[Schema]) -> Check:
    def check(value: Any, name: str, errors: Findings) -> None:
        outcomes = [_outcome(branch, value, name, errors) for branch in branches]
        valid = sum(1 for found in outcomes if not found)
        if valid == 1:
            return
        count = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(_combined(name, f"validate one and only one schema (oneOf). {count}"))
        if not valid:
            errors.extend(outcomes[0])

    return check


def _all_of_check(branches: list[Schema]) -> Check:
    def check(value: Any, name: str, errors: Findings) -> None:
        outcomes = [_outcome(branch, value, name, errors) for branch in branches]
        for found in outcomes:
            errors.extend(found)
        if any(outcomes):
            none = "" if not all(outcomes) else ". None validated"
            errors.append(_combined(name, f"validate all the schemas (allOf){none}"))

    return check


def _not_check(branch: Schema) -> Check:
    def check(value: Any, name: str, errors: Findings) -> None:
        if not _outcome(branch, value, name, errors):
            errors.append(_combined(name, "not validate the schema (not)"))

    return check
