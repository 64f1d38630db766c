"""Bodies of requests for subresources (JSON or YAML objects, empty ones allowed), and answers without one.

Whoever may start a machine may send any body: reading it must not hold up the webhooks for everybody else.
"""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import orjson
import yaml
from aiohttp import web

from kubecore import errors, json, yaml_text
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object
from virtplane.api.markers import ApiStruct
from virtplane.api.schema import request_schema
from virtplane.serving.responses import MOST_VALUES

MOST_BYTES = 3 << 20
"""No larger object can be stored."""
YAML_BYTES = 64 << 10
"""YAML takes a hundred times as long to read as JSON, which all of KubeVirt's clients send."""
_START = "Can not unmarshal Request body to struct, error: "
_JSON_TYPES: dict[type, str] = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
_GO_TYPES = {"boolean": "bool", "string": "string", "number": "float64", "array": "slice"}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


async def read_options(request: web.Request, struct: type[ApiStruct] | None = None) -> JsonObject:
    """The options of a request, with the types of `struct`. Raises StatusError for invalid ones."""
    return parse_options(await request.read(), struct)


def parse_options(body: bytes, struct: type[ApiStruct] | None = None) -> JsonObject:
    """The options in a request body; none if it is empty. Raises StatusError if it is not an object, or too
    large: in bytes, or in values, whose types are looked at one by one.

    Values must have the types of `struct`; unknown fields are ignored.
    """
    document = _decoded(body.strip())
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise unreadable(f"{_JSON_TYPES.get(type(document), 'value')} into Go value of type object")
    if json.has_more_values(document, MOST_VALUES):
        raise errors.too_large(f"limit is {MOST_VALUES} values")
    if struct is None:
        return document
    read: JsonObject = _read(_schema(struct), document, struct.__name__)
    return read


def _decoded(body: bytes) -> Any:
    if len(body) > MOST_BYTES:
        raise errors.too_large(f"limit is {MOST_BYTES}")
    try:
        if body.startswith(b"{"):
            with contextlib.suppress(orjson.JSONDecodeError):  # perhaps YAML in flow style
                return json.decode(body)
        if len(body) > YAML_BYTES:
            raise errors.too_large(f"limit is {YAML_BYTES} for what is not JSON")
        return yaml_text.load(body)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"{_START}{yaml_text.message(error)}") from error
    except json.TooDeep as error:
        raise errors.bad_request(f"{_START}{error}") from error


def unreadable(what: str) -> StatusError:
    """The error for a body that cannot be decoded, with the message of Go's decoder."""
    return errors.bad_request(f"{_START}json: cannot unmarshal {what}")


def is_dry_run(options: JsonObject) -> bool:
    """Whether nothing is to be changed."""
    return bool(get_list(options, "dryRun"))


@cache
def _schema(struct: type[ApiStruct]) -> JsonObject:
    return request_schema(struct)


def _read(schema: JsonObject, value: Any, path: str) -> Any:
    """The value as its type has it: texts may be given as numbers or truth values, nothing fits every type.

    Raises StatusError for the first value that does not fit.
    """
    expected = schema.get("type")
    if value is None or expected is None:
        return value
    if expected == "string" and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if not _fits(expected, str(schema.get("format", "")), value):
        given = _JSON_TYPES.get(type(value), "object")
        shown = f"{given} {value}" if given == "number" and expected in ("integer", "number") else given
        wanted = schema.get("format", "int64") if expected == "integer" else _GO_TYPES.get(expected, expected)
        raise unreadable(f"{shown} into Go struct field {path} of type {wanted}")
    if isinstance(value, list):
        return [_read(get_object(schema, "items"), item, path) for item in value]
    if not isinstance(value, dict):
        return value
    properties, additional = get_object(schema, "properties"), get_object(schema, "additionalProperties")
    return {
        str(key): _read(properties.get(key, additional), member, f"{path}.{key}")
        for key, member in value.items()
    }


def _fits(expected: str, form: str, value: Any) -> bool:
    if isinstance(value, bool):
        return expected == "boolean"
    if expected == "integer" and isinstance(value, int):
        limit: int = 2 ** (31 if form == "int32" else 63)
        return -limit <= value < limit
    return isinstance(value, _PYTHON_TYPES[expected])
