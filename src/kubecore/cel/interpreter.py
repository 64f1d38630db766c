"""Evaluation of syntax trees, with every step paid for.

A tree is turned into nested functions once; each takes the ``Run``, which holds the variables and what the
evaluation may still cost. Steps cost what they cost in Kubernetes: reading a variable or field 1, a list 10,
a map 30, calls by the size of their arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from . import authorization, conversions, lists, networks, quantities, strings
from .actual_costs import PRICES, work
from .declarations import Declared, choose
from .lists import with_entries
from .operators import OPERATORS, field
from .records import Record, Records
from .syntax import Call, Comprehension, Constant, Ident, ListLiteral, MapLiteral, Node, Select, qualified
from .values import (
    CALL_TOO_EXPENSIVE,
    NO_OVERLOAD,
    CostExceededError,
    EvaluationError,
    Optional,
    TypeValue,
    shown,
)

_LIST_COST, _MAP_COST, _RECORD_COST = 10, 30, 40
_TYPES: Final[Mapping[str, TypeValue]] = {
    **{name: TypeValue(name) for name in ("bool", "bytes", "double", "int", "null_type", "string", "type")},
    **{name: TypeValue(name) for name in ("uint", "list", "map", "optional_type", "net.IP", "net.CIDR")},
    **{name: TypeValue(name) for name in ("google.protobuf.Timestamp", "google.protobuf.Duration")},
    **{name: TypeValue(name) for name in ("kubernetes.Quantity", "kubernetes.URL")},
}


class Run:
    """One evaluation: its variables and what it may still cost."""

    __slots__ = ("left", "variables")

    def __init__(self, variables: Mapping[str, Any], limit: int) -> None:
        self.variables = {**_TYPES, **variables}
        self.left = limit

    def pay(self, cost: int) -> None:
        """Raises CostExceededError when nothing is left."""
        self.left -= cost
        if self.left < 0:
            raise CostExceededError(CALL_TOO_EXPENSIVE)


Step: TypeAlias = Callable[[Run], Any]


@cache
def _functions() -> Mapping[tuple[str, bool], Callable[..., Any]]:
    """All functions and, marked as such, methods by name."""
    found: dict[tuple[str, bool], list[Declared]] = {}
    for module in (strings, lists, quantities, networks, authorization, conversions):
        for each in module.FUNCTIONS:
            found.setdefault((each.name, each.is_member), []).append(each)
    return {name: choose(overloads) for name, overloads in found.items()}


def compiled(node: Node, variables: Mapping[str, Any], records: Records | None = None) -> Step:
    """The function that computes a tree's value; `variables` are the names that have dots in them, too."""
    dotted = frozenset(name for name in variables if "." in name) | _TYPES.keys()
    return _Compiler(dotted, records or Records()).step(node)


def _constant(value: Any) -> Step:
    return lambda _: value


class _Compiler:
    def __init__(self, dotted: frozenset[str], records: Records) -> None:
        self._dotted = dotted
        self._records = records

    def step(self, node: Node) -> Step:
        match node:
            case Constant():
                return _constant(node.value)
            case Ident():
                return _variable(node.name.removeprefix("."))
            case Select():
                return self._select(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._record(node) if node.message else self._map(node)
            case Comprehension():
                return self._comprehension(node)
            case Call():
                return self._call(node)

    def _select(self, node: Select) -> Step:
        if (name := qualified(node)) in self._dotted:
            return _variable(name)
        operand, name, is_test = self.step(node.operand), node.field, node.is_test

        def select(run: Run) -> Any:
            container = operand(run)
            run.pay(1)
            if not is_test:
                return field(container, name)
            while isinstance(container, Optional):
                if not container.held:
                    return False
                container = container.held[0]
            if isinstance(container, Record):
                return name in container.fields
            if not isinstance(container, dict):
                raise EvaluationError(f"no such key: {name}")
            return name in container

        return select

    def _list(self, node: ListLiteral) -> Step:
        parts = [(self.step(part), index in node.optionals) for index, part in enumerate(node.elements)]

        def build(run: Run) -> list[Any]:
            made: list[Any] = []
            for part, is_optional in parts:
                value = part(run)
                made += _held(value) if is_optional else (value,)
            run.pay(_LIST_COST)
            return made

        return build

    def _map(self, node: MapLiteral) -> Step:
        parts = [
            (self.step(entry.key), self.step(entry.value), entry.is_optional)
            for entry in node.entries
            if entry.key is not None
        ]

        def build(run: Run) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key_of, value_of, is_optional in parts:
                key, value = key_of(run), value_of(run)
                if not isinstance(key, str | int) and not (isinstance(key, float) and key.is_integer()):
                    raise EvaluationError(f"unsupported key type: {shown(key)}")
                for each in _held(value) if is_optional else (value,):
                    if key in made:
                        raise EvaluationError(f"Failed with repeated key: {key}")
                    made[key] = each
            run.pay(_MAP_COST)
            return made

        return build

    def _record(self, node: MapLiteral) -> Step:
        parts = [(entry.field, self.step(entry.value), entry.is_optional) for entry in node.entries]
        kind, records = self._records.full_name(node.message), self._records

        def build(run: Run) -> Record:
            made: dict[str, Any] = {}
            for name, value_of, is_optional in parts:
                value = value_of(run)
                for each in _held(value) if is_optional else (value,):
                    made[name] = each
            run.pay(_RECORD_COST)
            return Record(kind, made, records)

        return build

    def _comprehension(self, node: Comprehension) -> Step:
        over, initial, result = self.step(node.range), self.step(node.initial), self.step(node.result)
        condition = None if isinstance(node.condition, Constant) else self.step(node.condition)
        step = self._growing(node) or self.step(node.step)
        first, second, accumulator = node.variable, node.second_variable, node.accumulator

        def loop(run: Run) -> Any:
            values = over(run)
            if not isinstance(values, list | dict):
                raise EvaluationError(NO_OVERLOAD)
            outer = run.variables
            run.variables = inner = dict(outer)
            try:
                inner[accumulator] = initial(run)
                pairs = values.items() if isinstance(values, dict) else enumerate(values)
                is_key = bool(second) or isinstance(values, dict)
                for key, value in pairs:
                    inner[first] = key if is_key else value
                    if second:
                        inner[second] = value
                    if condition is not None and condition(run) is False:
                        break
                    try:
                        inner[accumulator] = step(run)
                    except CostExceededError:
                        raise
                    except EvaluationError as error:
                        if condition is None:
                            raise
                        inner[accumulator] = error
                return result(run)
            finally:
                run.variables = outer

        return loop

    def _growing(self, node: Comprehension) -> Step | None:
        """A step that only adds to what is collected adds in place: nothing else can see the collection."""
        if not isinstance(node.initial, ListLiteral | MapLiteral):
            return None
        return self._addition(node.step, node.accumulator)

    def _addition(self, node: Node, accumulator: str) -> Step | None:
        if not isinstance(node, Call) or node.target is not None:
            return None
        if node.function == "_?_:_":
            added = self._addition(node.args[1], accumulator)
            if added is None or node.args[2] != Ident(accumulator, node.args[2].at):
                return None
            return _conditional(self.step(node.args[0]), added, self.step(node.args[2]))
        if node.function not in ("_+_", "cel.@mapInsert") or not isinstance(node.args[0], Ident):
            return None
        if node.args[0].name != accumulator:
            return None
        known, parts = self.step(node.args[0]), [self.step(part) for part in node.args[1:]]

        def add(run: Run) -> Any:
            collected, more = known(run), [part(run) for part in parts]
            run.pay(1)
            if isinstance(collected, dict):
                return with_entries(collected, *more)
            if not isinstance(more[0], list):
                raise EvaluationError(NO_OVERLOAD)
            run.pay(work(len(more[0])))
            collected += more[0]
            return collected

        return add

    def _call(self, node: Call) -> Step:
        name, parts = node.function, [self.step(part) for part in node.args]
        if node.target is not None:
            parts.insert(0, self.step(node.target))
        if name == "_?_:_":
            return _conditional(*parts)
        if name in ("_&&_", "_||_"):
            return _logic(name == "_||_", parts)
        if name == "@not_strictly_false":
            return _lenient(parts[0])
        if name in ("or", "orValue"):
            return _alternative(parts[0], parts[1], is_value=name == "orValue")
        run_call = OPERATORS.get(name) or _functions().get((name, node.target is not None)) or _unknown
        price = PRICES.get(name)

        def call(run: Run) -> Any:
            values = [part(run) for part in parts]
            run.pay(1 if price is None else price(*values))
            return run_call(*values)

        return call if len(parts) != 2 else _binary(parts[0], parts[1], price, run_call)


def _binary(
    first: Step, second: Step, price: Callable[..., int] | None, run_call: Callable[..., Any]
) -> Step:
    """A call of two arguments, as most are; it takes less time than one of any number."""

    def call(run: Run) -> Any:
        left, right = first(run), second(run)
        run.left -= 1 if price is None else price(left, right)
        if run.left < 0:
            raise CostExceededError(CALL_TOO_EXPENSIVE)
        return run_call(left, right)

    return call


def _unknown(*_: Any) -> Any:
    raise EvaluationError(NO_OVERLOAD)


def _held(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Optional):
        raise EvaluationError(f"cannot initialize optional entry from non-optional value {shown(value)}")
    return value.held


def _variable(name: str) -> Step:
    def read(run: Run) -> Any:
        run.left -= 1
        if run.left < 0:
            raise CostExceededError(CALL_TOO_EXPENSIVE)
        try:
            value = run.variables[name]
        except KeyError:
            raise EvaluationError(f"no such attribute(s): {name}") from None
        if isinstance(value, EvaluationError):
            raise value
        return value

    return read


def _conditional(condition: Step, then: Step, otherwise: Step) -> Step:
    def choose_one(run: Run) -> Any:
        found = condition(run)
        if not isinstance(found, bool):
            raise EvaluationError(NO_OVERLOAD)
        return then(run) if found else otherwise(run)

    return choose_one


def _logic(decides: bool, parts: list[Step]) -> Step:
    """``||`` (`decides` is true) and ``&&``: one operand that decides makes up for errors of others."""

    def combine(run: Run) -> bool:
        failure: EvaluationError | None = None
        for part in parts:
            try:
                value = part(run)
            except CostExceededError:
                raise
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decides:
                return bool(value)
            if not isinstance(value, bool):
                failure = failure or EvaluationError(NO_OVERLOAD)
        if failure is not None:
            raise failure
        return not decides

    return combine


def _lenient(part: Step) -> Step:
    def is_not_false(run: Run) -> bool:
        run.pay(1)
        try:
            return part(run) is not False
        except CostExceededError:
            raise
        except EvaluationError:
            return True

    return is_not_false


def _alternative(first: Step, second: Step, *, is_value: bool) -> Step:
    def either(run: Run) -> Any:
        value = first(run)
        run.pay(1)
        if not isinstance(value, Optional):
            raise EvaluationError(NO_OVERLOAD)
        if not value.held:
            return second(run)
        return value.held[0] if is_value else value

    return either
