"""Types of expressions: what is assignable to what, and how messages name them.

The rules are those of the language's type checker in Go, which Kubernetes uses: ``dyn`` and the error type
are assignable to and from every type, and a type parameter (``A``) is bound to the first type that it is
compared with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubecore.schema.model import Schema

from .escaping import RESERVED, cel_name

_SIMPLE = frozenset({"bool", "int", "uint", "double", "string", "bytes", "null"})
_STRUCTURED = frozenset({"list", "map", "type"})
_TOKEN = re.compile(r"[\w.]+|[(),]")
_FORMATS = {"date-time": "timestamp", "date": "timestamp", "duration": "duration", "byte": "bytes"}
_SCALARS = {"integer": "int", "number": "double", "boolean": "bool"}


@dataclass(frozen=True, slots=True)
class Type:
    """A type by name; an object type also knows the `schema` of its fields."""

    name: str
    parameters: tuple[Type, ...] = ()
    schema: Schema | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}({inner})" if inner else self.name

    @property
    def is_parameter(self) -> bool:
        """Whether it stands for another type: ``A``, or a free variable of the checker."""
        return self.name.startswith("_") or (len(self.name) == 1 and self.name.isupper())

    @property
    def is_open(self) -> bool:
        """Whether anything may be done with the value."""
        return self.name in ("dyn", "any", "!error!")

    @property
    def is_nullable(self) -> bool:
        """Whether null is one of its values."""
        return not self.is_parameter and self.name not in _SIMPLE | _STRUCTURED


DYN, ERROR, BOOL, INT, STRING = map(Type, ("dyn", "!error!", "bool", "int", "string"))


def list_of(element: Type) -> Type:
    """``list(element)``."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """``optional_type(value)``."""
    return Type("optional_type", (value,))


def parse_type(text: str) -> Type:
    """A type as messages name it: ``map(string, list(A))``."""
    tokens = _TOKEN.findall(text)[::-1]

    def read() -> Type:
        name, parameters = tokens.pop(), []
        if tokens and tokens[-1] == "(":
            while tokens.pop() != ")":
                parameters.append(read())
                if tokens[-1] == ")":
                    tokens.pop()
                    break
        return Type(name, tuple(parameters))

    return read()


def of_schema(schema: Schema | None, name: str) -> Type | None:
    """The type of a value of `schema`; None if expressions cannot access it. Object types are called
    `name`.
    """
    if schema is None:
        return None
    if schema.int_or_string:
        return DYN
    if schema.type == "array":
        inner = of_schema(schema.items, f"{name}.@idx")
        return None if inner is None else list_of(inner)
    if schema.type == "object":
        values = schema.raw.get("additionalProperties")
        if isinstance(values, dict) and not schema.embedded_resource:
            inner = of_schema(schema.additional_properties, f"{name}.@elem")
            return None if inner is None else map_of(STRING, inner)
        return Type(name, (), schema)
    if schema.type == "string":
        return Type(_FORMATS.get(schema.format, "string"))
    return Type(_SCALARS[schema.type]) if schema.type in _SCALARS else None


def field_type(struct: Type, name: str, *, escaped: bool) -> Type | None:
    """The type of a field of an object; None when it has none of this name."""
    if struct.schema is None:
        return None
    if name in RESERVED:
        name = cel_name(name) if escaped else name
    for known, child in struct.schema.properties.items():
        if (cel_name(known) if escaped else known) == name:
            hidden = struct.schema.embedded_resource and known == "metadata"
            return of_schema(_visible_metadata(child) if hidden else child, f"{struct.name}.{name}")
    return None


def _visible_metadata(schema: Schema) -> Schema:
    """Of an object's metadata, rules see how it is named."""
    seen = ("name", "generateName")
    return Schema({"type": "object", "properties": {key: schema.properties[key].raw for key in seen}})


class TypesTooLargeError(Exception):
    """The types of an expression take more steps to compare and to replace than it may cost."""


class Bindings:
    """Which types the type parameters stand for.

    Types that hold themselves twice (``{v: v}``) double with every nested loop, so all work is counted: after
    `steps` comparisons and replacements, every method raises `TypesTooLargeError`.
    """

    def __init__(self, steps: int) -> None:
        self._known: dict[Type, Type] = {}
        self._steps_left = steps

    def _step(self) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TypesTooLargeError

    def assign(self, types: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether values of `types` can be used as `wanted`; binds type parameters if so."""
        before = dict(self._known)
        if len(types) == len(wanted) and all(map(self._assignable, types, wanted)):
            return True
        self._known = before
        return False

    def substitute(self, kind: Type, *, close: bool = False) -> Type:
        """The type with its parameters replaced by their bindings; unbound ones by ``dyn`` when `close`."""
        self._step()
        if kind in self._known:
            return self.substitute(self._known[kind], close=close)
        if kind.is_parameter:
            return DYN if close else kind
        inner = tuple(self.substitute(each, close=close) for each in kind.parameters)
        return Type(kind.name, inner, kind.schema) if inner else kind

    def _assignable(self, left: Type, right: Type) -> bool:
        self._step()
        if right.is_parameter:
            valid, known = self._bind(left, right)
            if valid or known:
                return valid
        if left.is_parameter:
            return self._bind(right, left)[0]
        if left.is_open or right.is_open:
            return True
        if left.name == "null" or right.name == "null":
            other = right if left.name == "null" else left
            return other.name == "null" or other.is_nullable
        if left.name == "type" or left.name != right.name:
            return left.name == right.name
        return len(left.parameters) == len(right.parameters) and all(
            map(self._assignable, left.parameters, right.parameters)
        )

    def _bind(self, kind: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether `parameter` can stand for `kind`, and whether it stood for something already."""
        if kind == parameter:
            return True, True
        if (known := self._known.get(parameter)) is not None:
            if kind == known:
                return True, True
            if not self._assignable(kind, known):
                return False, True
            general = kind if is_less_specific(kind, known) else known
            if not self._occurs(parameter, general):
                self._known[parameter] = general
            return True, True
        if self._occurs(parameter, kind):
            return False, False
        self._known[parameter] = kind
        return True, False

    def _occurs(self, parameter: Type, within: Type) -> bool:
        self._step()
        if parameter == within:
            return True
        if within.is_parameter:
            return within in self._known and self._occurs(parameter, self._known[within])
        return any(self._occurs(parameter, each) for each in within.parameters)


def is_less_specific(left: Type, right: Type) -> bool:
    """Whether `left` is at most as specific as `right`."""
    if left.is_parameter or left.name in ("dyn", "any"):
        return True
    if right.is_parameter or right.name in ("dyn", "any") or left.name != right.name:
        return False
    return left.name == "type" or all(map(is_less_specific, left.parameters, right.parameters))
