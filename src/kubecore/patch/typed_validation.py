"""Whether an applied configuration has the form that its schema demands, in the words of the API."""

from __future__ import annotations

from typing import Any, Final

from kubecore.objects.fields import format_float, go_quote
from kubecore.objects.goformat import go_print
from kubecore.patch.field_types import ANY, LIST, SCALAR, FieldType, TypedError
from kubecore.patch.fieldset import format_element

_SCALARS: Final = (str, int, float)


_REPEATED: Final = "duplicate entries for key"


def validate(kind: FieldType, document: Any, *, allow_duplicates: bool = False) -> None:
    """Raise `TypedError` with everything that is wrong with the document.

    `allow_duplicates` is for stored objects; an applied configuration must not repeat a key in a list.
    """
    problems: list[str] = []
    _validate(kind, document, "", problems)
    if allow_duplicates:
        problems = [problem for problem in problems if f": {_REPEATED} " not in problem]
    if problems:
        raise TypedError(problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems]))


def _validate(kind: FieldType, value: Any, path: str, problems: list[str]) -> None:
    if value is None or kind.kind == ANY:
        return
    if kind.kind == SCALAR:
        problem = _scalar_problem(kind.scalar, value)
        if problem:
            problems.append(f"{path}: {problem}")
    elif kind.kind == LIST:
        _validate_list(kind, value, path, problems)
    elif not isinstance(value, dict):
        problems.append(f"{path}: expected map, got &{{{go_print(value)}}}")
    else:
        for name, child in value.items():
            if kind.allows(name):
                _validate(kind.child(name)[0], child, f"{path}.{name}", problems)
            else:
                problems.append(f"{path}.{name}: field not declared in schema")


def _validate_list(kind: FieldType, items: Any, path: str, problems: list[str]) -> None:
    if not isinstance(items, list):
        problems.append(f"{path}: expected list, got &{{{go_print(items)}}}")
        return
    seen: set[str] = set()
    for index, item in enumerate(items):
        element = f"[{index}]"
        if not kind.atomic:
            try:
                key = kind.element_key(item)
            except TypedError as error:
                problems.append(f"{path}: element {index}: {error}")
                return
            element = format_element(key)
            if key in seen:
                problems.append(f"{path}: {_REPEATED} {element}")
            seen.add(key)
        _validate(kind.element, item, path + element, problems)


def _scalar_problem(scalar: str, value: Any) -> str:
    if scalar == "string":
        return (
            ""
            if isinstance(value, str)
            else f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
        )
    if scalar == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got &{{{go_print(value)}}}"
    if scalar == "numeric":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if is_number else f"expected numeric (int or float), got {_go_type(value)}"
    return "" if isinstance(value, _SCALARS) else f"expected any scalar, got &{{{go_print(value)}}}"


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "[]interface {}" if isinstance(value, list) else "map[string]interface {}"


def _go_syntax(value: Any) -> str:
    """A value as Go source (``%#v``)."""
    if isinstance(value, dict):
        inside = ", ".join(f"{go_quote(key)}:{_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inside}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_go_syntax(item) for item in value)}}}"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return go_quote(value)
    return format_float(value) if isinstance(value, float) else str(value)
