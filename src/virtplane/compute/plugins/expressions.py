"""Conditions and mutations in plugins: CEL over an instance and its domain.

Compiling and evaluating take time that grows with the expression, so that virt-handler does both in threads.
The first expression loads the parser, which takes 20 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kubecore.cel import CompileError, Environment, EvaluationError, Program
from kubecore.cel.checker import mentions
from kubecore.cel.records import Record, Records
from kubecore.json import JsonObject
from virtplane.compute.domain.xml import Element
from virtplane.compute.plugins.domainmerging import MergeError, merged
from virtplane.compute.plugins.domainreading import record_of
from virtplane.compute.plugins.domaintypes import CONTAINER, DOMAIN, parts
from virtplane.compute.plugins.vmitypes import VMI, Naming, vmi_record, vmi_types

COST_LIMIT: Final = 10_000_000
"""What one evaluation may cost, as in KubeVirt."""


class ExpressionError(ValueError):
    """An expression does not compile, has no value, or has one that cannot be used."""


@dataclass(frozen=True)
class _Dialect:
    """What expressions of one kind may name, and the words of KubeVirt for what is wrong with them."""

    naming: Naming
    records: Records
    variables: dict[str, str]
    does_not_compile: str
    is_no_bool: str
    has_no_value: str

    def compile(self, text: str) -> Program:
        """Raises ExpressionError."""
        try:
            return Environment(self.variables, self.records, COST_LIMIT).compile(text)
        except CompileError as error:
            raise ExpressionError(f"{self.does_not_compile}: {error}") from error

    def condition(self, text: str) -> Program:
        """Raises ExpressionError."""
        program = self.compile(text)
        if program.return_type != "bool":
            raise ExpressionError(f"{self.is_no_bool}, got {program.return_type}")
        return program


@cache
def _domain_dialect() -> _Dialect:
    types = {name: {part.name: part.cel_type for part in fields.values()} for name, fields in parts().items()}
    return _Dialect(
        Naming.GO,
        Records({**vmi_types(Naming.GO), **types}, CONTAINER),
        {"vmi": VMI, "domainSpec": DOMAIN},
        "compiling expression",
        "condition must return bool",
        "evaluating expression",
    )


@cache
def _node_dialect() -> _Dialect:
    return _Dialect(
        Naming.API,
        Records(vmi_types(Naming.API)),
        {"vmi": VMI},
        "CEL compilation failed",
        "CEL expression must return bool",
        "CEL evaluation failed",
    )


def check_domain_condition(text: str) -> None:
    """Raises ExpressionError if `text` is no condition of a plugin or a domain hook."""
    _domain_dialect().condition(text)


def reads_domain(text: str) -> bool:
    """Whether a condition depends on the domain. Raises ExpressionError if it is none."""
    return mentions(_domain_dialect().condition(text).tree, "domainSpec")


def check_node_condition(text: str) -> None:
    """Raises ExpressionError if `text` is no condition of a node hook."""
    _node_dialect().condition(text)


def check_mutation(text: str) -> None:
    """Raises ExpressionError if `text` does not give a domain."""
    _mutation(text)


def domain_condition(text: str, vmi: JsonObject, domain: Element | None) -> bool:
    """Whether a plugin or domain hook concerns the instance; `domain` is unknown outside of domain hooks.

    Raises ExpressionError.
    """
    return _truth(_domain_dialect(), text, vmi, domain)


def node_condition(text: str, vmi: JsonObject) -> bool:
    """Whether a node hook concerns the instance. Raises ExpressionError."""
    return _truth(_node_dialect(), text, vmi, None)


def mutated(text: str, vmi: JsonObject, domain: Element) -> Element:
    """A copy of the domain, changed as the expression says. Raises ExpressionError."""
    program = _mutation(text)
    change = _evaluated(_domain_dialect(), program, vmi, domain)
    if not isinstance(change, Record) or change.kind != DOMAIN:
        raise ExpressionError(f"mutation must return a Domain object, got {program.return_type}")
    try:
        return merged(domain, change)
    except MergeError as error:
        raise ExpressionError(f"merging mutation result: {error}") from error


def _mutation(text: str) -> Program:
    program = _domain_dialect().compile(text)
    if program.return_type != DOMAIN:
        raise ExpressionError(f"mutation must return Domain, got {program.return_type}")
    return program


def _truth(dialect: _Dialect, text: str, vmi: JsonObject, domain: Element | None) -> bool:
    value = _evaluated(dialect, dialect.condition(text), vmi, domain)
    if not isinstance(value, bool):
        raise ExpressionError(dialect.is_no_bool)
    return value


def _evaluated(dialect: _Dialect, program: Program, vmi: JsonObject, domain: Element | None) -> Any:
    values: dict[str, Any] = {"vmi": vmi_record(vmi, dialect.naming, dialect.records)}
    if domain is not None:
        values["domainSpec"] = record_of(domain, DOMAIN, dialect.records)
    try:
        return program.evaluate(values)
    except EvaluationError as error:
        raise ExpressionError(f"{dialect.has_no_value}: {error}") from error
