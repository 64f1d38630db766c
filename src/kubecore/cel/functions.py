"""All functions that Kubernetes adds to CEL."""

from __future__ import annotations

from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from . import authorization, lists, networks, quantities, strings
from .declarations import declarations


@cache
def extensions() -> tuple[Any, ...]:
    """The standard extensions of the language and the Kubernetes library."""
    modules = (lists, strings, quantities, networks, authorization)
    declared = declarations(each for module in modules for each in module.FUNCTIONS)
    return (
        ext_strings.ExtStrings(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_encoders.ExtEncoders(),
        cel.CelExtension("kubernetes", declared),
    )
