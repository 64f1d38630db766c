"""From a VirtualMachineTemplate and values of its parameters to a VirtualMachine; nothing is sent."""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import go_quote
from kubecore.objects.structs import UnfitDocument, decode
from virtplane.api.kubevirt_v1.vm import VirtualMachine

_IN_TEXT = re.compile(r"\$\{([a-zA-Z0-9_]+)\}")
"""Where a value is put into a text."""

_WHOLE = re.compile(r"\$\{\{([a-zA-Z0-9_]+)\}\}")
"""A text that a value replaces, perhaps by a number or a truth value."""

_PATTERN = re.compile(r"\[([a-zA-Z0-9\-\\]+)\]\{([0-9]+)\}")
_PIECE = re.compile(r"\\([wdaA])|([a-zA-Z0-9])-([a-zA-Z0-9])|([a-zA-Z0-9])")
_LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits
"""The order of characters in ranges."""

_CLASSES = {"w": f"{_LETTERS}_", "d": string.digits, "a": _LETTERS, "A": string.punctuation}
_LONGEST = 255


class TemplateError(Exception):
    """What is wrong with a template or the values of its parameters, in the words of field errors."""


def with_values(template: JsonObject, values: Mapping[str, str]) -> JsonObject:
    """The template with other values of its parameters. Raises TemplateError for unknown parameters."""
    parameters = _parameters(template)
    known = {get_str(parameter, "name") for parameter in parameters}
    for name in sorted(values):
        if name not in known:
            raise TemplateError(f"parameter {name} not found in template")
    changed = [
        {**parameter, "value": values[parameter["name"]]} if parameter.get("name") in values else parameter
        for parameter in parameters
    ]
    return {**template, "spec": {**get_object(template, "spec"), "parameters": changed}}


def check_references(template: JsonObject) -> list[str]:
    """What the template's author should know. Raises TemplateError for parameters that do not exist."""
    machine = get_object(template, "spec", "virtualMachine")
    if not machine:
        text = "spec.virtualMachine: Invalid value: null: virtualMachine is required and cannot be empty"
        raise TemplateError(text)
    names = [get_str(parameter, "name") for parameter in _parameters(template)]
    used = set(_references(machine)) | set(_IN_TEXT.findall(get_str(template, "spec", "message")))
    problems = [
        f"spec.virtualMachine: Invalid value: {go_quote(name)}: references undefined parameter {name}"
        for name in sorted(used - set(names))
    ]
    told = [
        f"spec.parameters[{index}].name: {name} is defined but never referenced"
        for index, name in enumerate(names)
        if name not in used
    ]
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise TemplateError("\n".join([*(f"Warning: {line}" for line in told), text]))
    return told


def process(template: JsonObject) -> tuple[JsonObject, str]:
    """The VirtualMachine and the message for the user. Raises TemplateError."""
    values = _values(_parameters(template))
    machine = _substituted(get_object(template, "spec", "virtualMachine"), values)
    assert isinstance(machine, dict)
    made: JsonObject = {**machine, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
    try:
        decode(VirtualMachine, made)
    except UnfitDocument as error:
        shown = json.dumps(machine, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        reason = f"failed to convert unstructured object to VirtualMachine: {error}"
        raise TemplateError(f"spec.virtualMachine: Invalid value: {shown}: {reason}") from error
    return made, _in_text(get_str(template, "spec", "message"), values)


def generated(pattern: str) -> str:
    """A text in which random characters replace each ``[characters]{count}``. Raises TemplateError."""
    chosen = random.SystemRandom()

    def characters(found: re.Match[str]) -> str:
        alphabet = "".join(_alphabet(found[1]))
        count = int(found[2])
        if not alphabet or not 1 <= count <= _LONGEST:
            raise TemplateError(f"range must be within [1-{_LONGEST}] characters: {count}")
        return "".join(chosen.choices(alphabet, k=count))

    return _PATTERN.sub(characters, pattern)


def _alphabet(text: str) -> Iterator[str]:
    for kind, first, last, single in _PIECE.findall(text):
        if not first:
            yield _CLASSES.get(kind, single)
            continue
        begin, end = _LETTERS.index(first), _LETTERS.index(last)
        if begin > end:
            raise TemplateError(f"invalid range specified: {first}-{last}")
        yield _LETTERS[begin : end + 1]


def _parameters(template: JsonObject) -> list[JsonObject]:
    return [item for item in get_list(template, "spec", "parameters") if isinstance(item, dict)]


def _values(parameters: list[JsonObject]) -> dict[str, str]:
    """The values of the parameters, generated where they are to be. Raises TemplateError."""
    values: dict[str, str] = {}
    for index, parameter in enumerate(parameters):
        path, name = f"spec.parameters[{index}]", get_str(parameter, "name")
        if name in values:
            raise TemplateError(f"{path}.name: Duplicate value: {go_quote(name)}")
        values[name] = get_str(parameter, "value") or _generated(parameter, path)
        if parameter.get("required") is True and not values[name]:
            text = f"parameter '{name}' is required and a value must be specified"
            raise TemplateError(f"{path}.value: Required value: {text}")
    return values


def _generated(parameter: JsonObject, path: str) -> str:
    name, generator = get_str(parameter, "name"), get_str(parameter, "generate")
    pattern = get_str(parameter, "from")
    if not generator:
        return ""
    if generator != "expression":
        text = f"unknown generator name '{generator}' for parameter '{name}'"
        raise TemplateError(f"{path}.generate: Invalid value: {go_quote(generator)}: {text}")
    if not pattern:
        text = f"from cannot be empty for parameter '{name}' using generator '{generator}'"
        raise TemplateError(f'{path}.from: Invalid value: "": {text}')
    try:
        return generated(pattern)
    except TemplateError as error:
        raise TemplateError(f"{path}.from: Invalid value: {go_quote(pattern)}: {error}") from error


def _references(value: Any) -> Iterator[str]:
    """The names of the parameters in a document."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _references(key)
            yield from _references(member)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str):
        whole = _WHOLE.fullmatch(value)
        yield from [whole[1]] if whole else _IN_TEXT.findall(value)


def _substituted(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {_in_text(str(key), values): _substituted(member, values) for key, member in value.items()}
    if isinstance(value, list):
        return [_substituted(item, values) for item in value]
    if not isinstance(value, str):
        return value
    whole = _WHOLE.fullmatch(value)
    if not whole:
        return _in_text(value, values)
    text = values.get(whole[1], value)
    try:
        return json.loads(text)
    except ValueError:
        return text


def _in_text(text: str, values: Mapping[str, str]) -> str:
    return _IN_TEXT.sub(lambda found: values.get(found[1], found[0]), text)
