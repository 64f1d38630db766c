"""YAML as Kubernetes reads it: the values that JSON has, and complaints in its parser's words."""

from __future__ import annotations

import re
from typing import Any

import orjson
import yaml

from kubecore import errors


def load(raw: bytes) -> Any:
    """The JSON value of YAML text. Raises yaml.YAMLError; StatusError (400) where JSON has no such value."""
    try:
        document = orjson.loads(raw) if raw[:1] == b"{" else yaml.load(raw, Loader=_Loader)
    except orjson.JSONDecodeError:
        document = yaml.load(raw, Loader=_Loader)
    except (RecursionError, ValueError) as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error
    try:
        # Through JSON once: no dates, no keys that are not strings.
        return orjson.loads(orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError) as error:
        raise errors.bad_request(f"error converting YAML to JSON: {error}") from error


class _Loader(yaml.CSafeLoader):
    """YAML without timestamps: those are strings in the API."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def _short_bool(loader: _Loader, node: yaml.ScalarNode) -> bool:
    """``y`` and ``n`` are booleans in YAML 1.1, though this library's own rules leave them out."""
    return str(loader.construct_scalar(node)).lower() == "y"


_Loader.add_implicit_resolver("!short-bool", re.compile("^[yYnN]$"), list("yYnN"))
_Loader.add_constructor("!short-bool", _short_bool)


def message(error: yaml.YAMLError) -> str:
    """What is wrong with YAML text, as Kubernetes' parser says it."""
    problem = getattr(error, "problem", None) or str(error)
    line = 0
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if mark is not None and mark.line:
            # Counted from zero; only the scanner's errors are corrected to what editors show.
            line = mark.line + (1 if isinstance(error, yaml.scanner.ScannerError) else 0)
            break
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"
