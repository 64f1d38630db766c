"""All functions that Kubernetes adds to CEL."""

from __future__ import annotations

from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings

from . import authorization, lists, networks, quantities, strings
from .declarations import declarations

_EXTENSIONS = ("two-var-comprehensions", "lists", "strings", "optional", "sets")


def config() -> Any:
    """The extensions of the language that Kubernetes has."""
    names = "".join(f"- name: {name}\n" for name in _EXTENSIONS)
    return cel.NewEnvConfigFromYaml(f"name: kubernetes\nextensions:\n{names}")


@cache
def extensions() -> tuple[Any, ...]:
    """The Kubernetes library, and the binding of names for our own use."""
    modules = (lists, strings, quantities, networks, authorization)
    declared = declarations(each for module in modules for each in module.FUNCTIONS)
    return (ext_bindings.ExtBindings(), cel.CelExtension("kubernetes", declared))
