"""Bodies of requests for subresources: JSON or YAML objects, empty ones allowed."""

from __future__ import annotations

import yaml
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject, get_list

_START = "Can not unmarshal Request body to struct, error: "


async def read_options(request: web.Request) -> JsonObject:
    """The options of a request. Raises StatusError for what is no object."""
    return parse_options(await request.read())


def parse_options(body: bytes) -> JsonObject:
    """The options that a body holds; none for an empty one. Raises StatusError for what is no object."""
    if not body.strip():
        return {}
    try:
        document = yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise errors.bad_request(f"{_START}{error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise errors.bad_request(f"{_START}json: cannot unmarshal {type(document).__name__} into an object")
    return {key: str(value) if key == "name" else value for key, value in document.items()}


def is_dry_run(options: JsonObject) -> bool:
    """Whether nothing is to be changed."""
    return bool(get_list(options, "dryRun"))
