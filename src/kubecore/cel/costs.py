"""Upper bound of the CEL cost of an expression, estimated without evaluating it.

Kubernetes rejects validation rules of CustomResourceDefinitions whose estimate exceeds the cost limit, so a
rule that can take seconds or gigabytes is never stored. The cost units are those of Kubernetes: reading a
variable or field costs 1, a loop costs its body times the maximum number of elements, strings cost 0.1 per
byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubecore.schema.model import Schema

from .call_costs import LISTS, SCALAR, TEXTS, CallCost, Value, call_cost, declared, plus, text, times
from .escaping import cel_name
from .program import Program
from .sizes import UNKNOWN
from .syntax import (
    Call,
    Comprehension,
    Constant,
    Ident,
    ListLiteral,
    MapLiteral,
    Node,
    Select,
)

RULE_LIMIT: Final = 10_000_000
"""Most that one expression may cost, as often as it can be evaluated in one object."""
SCHEMA_LIMIT: Final = 100_000_000
"""Most that all expressions of a schema may cost together."""

_LIST_COST, _MAP_COST, _MESSAGE_COST = 10, 30, 40


def estimate(program: Program, variables: Mapping[str, Schema]) -> int:
    """The most that a program can cost where its variables hold values of these schemas."""
    known = {name: declared(schema) for name, schema in variables.items()}
    return _Estimator(known).cost(program.tree)[0]


class _Estimator:
    """Walks the syntax tree once. Each step returns the cost and the size estimate of the value."""

    def __init__(self, variables: dict[str, Value]) -> None:
        self._variables = variables

    def cost(self, node: Node) -> CallCost:
        match node:
            case Constant():
                return 0, text(len(node.value), len(node.value)) if isinstance(
                    node.value, str | bytes
                ) else SCALAR
            case Ident():
                return 1, self._variables.get(node.name, SCALAR)
            case Select():
                cost, operand = self.cost(node.operand)
                return plus(cost, 1), _field(operand, node.field)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                base = _MESSAGE_COST if node.message else _MAP_COST
                parts = [part for entry in node.entries for part in (entry.key, entry.value) if part]
                cost = plus(base, *(self.cost(part)[0] for part in parts))
                return cost, Value(None, len(node.entries), len(node.entries), LISTS)
            case Comprehension():
                return self._comprehension(node)
            case Call():
                return self._call(node)

    def _list(self, node: ListLiteral) -> CallCost:
        parts = [self.cost(element) for element in node.elements]
        element = max((value for _, value in parts), key=lambda value: value.size, default=None)
        cost = plus(_LIST_COST, *(part for part, _ in parts))
        return cost, Value(None, len(parts), len(parts), LISTS, element)

    def _comprehension(self, node: Comprehension) -> CallCost:
        before = dict(self._variables)
        try:
            if isinstance(node.range, ListLiteral) and not node.range.elements:
                return self._binding(node)
            return self._loop(node)
        finally:
            self._variables = before

    def _loop(self, node: Comprehension) -> CallCost:
        range_cost, over = self.cost(node.range)
        initial_cost, initial = self.cost(node.initial)
        self._variables[node.variable] = _iterated(over, is_pair=bool(node.second_variable))
        self._variables[node.second_variable] = over.element
        self._variables[node.accumulator] = initial
        condition, _ = self.cost(node.condition)
        step, grown = self.cost(node.step)
        if initial.kind:
            # The accumulated list is as large as all its parts together.
            size = over.size if initial.kind == LISTS else times(over.size, grown.size)
            self._variables[node.accumulator] = Value(None, 0, size, initial.kind, grown.known_element)
        result_cost, result = self.cost(node.result)
        return plus(range_cost, initial_cost, times(over.size, plus(condition, step)), result_cost), result

    def _binding(self, node: Comprehension) -> CallCost:
        """``cel.bind``: a loop over nothing, whose accumulator is the bound variable."""
        cost, self._variables[node.accumulator] = self.cost(node.initial)
        result_cost, result = self.cost(node.result)
        return plus(cost, result_cost), result

    def _call(self, node: Call) -> CallCost:
        parts = [self.cost(part) for part in ((node.target,) if node.target is not None else ()) + node.args]
        values = [value for _, value in parts]
        if node.function == "_?_:_":
            cost = plus(parts[0][0], max(parts[1][0], parts[2][0]))
            return cost, max(values[1:], key=lambda value: value.size)
        own, result = call_cost(node.function, values)
        return plus(own, *(part for part, _ in parts)), result


def _field(operand: Value, name: str) -> Value:
    schema = operand.schema
    if schema is None:
        return SCALAR
    for known, child in schema.properties.items():
        if name in (known, cel_name(known)):
            return declared(child)
    return declared(schema.additional_properties)


def _iterated(over: Value, *, is_pair: bool) -> Value:
    """The loop's first variable: an element or a map key; with two variables, the index or key."""
    if over.is_map:
        return Value(None, 0, UNKNOWN, TEXTS)
    return SCALAR if is_pair else over.element
