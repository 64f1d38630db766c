"""CEL cost limits of a schema's validation rules: per rule and in total."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubecore.cel import Program
from kubecore.cel.call_costs import times
from kubecore.cel.costs import RULE_LIMIT, SCHEMA_LIMIT, estimate
from kubecore.cel.sizes import MAX_REQUEST_BYTES, min_bytes
from kubecore.objects.fields import FieldError, FieldPath, forbidden
from kubecore.schema.model import Schema

_MOST_EXPENSIVE: Final = 4
"""So many rules are named when all together cost too much."""


class Budget:
    """Sums up the estimated costs of the rules of one schema."""

    def __init__(self) -> None:
        self._total = 0
        self._costs: list[tuple[int, FieldPath]] = []

    def check(
        self, program: Program, schema: Schema, cardinality: int | None, path: FieldPath, what: str
    ) -> Iterator[FieldError]:
        """Add an expression that is evaluated at most `cardinality` times (None: as often as its values fit
        into a request); errors if it exceeds the limit.
        """
        if cardinality is None:
            cardinality = MAX_REQUEST_BYTES // (schema.derive(min_bytes) + 1)
        variables = {"self": schema, "oldSelf": schema, "oldSelfValue": schema}
        cost = times(estimate(program, variables), cardinality)
        self._total += cost
        if cost >= SCHEMA_LIMIT // 100:
            self._costs.append((cost, path))
        if cost > RULE_LIMIT:
            yield forbidden(path, _exceeds(f"estimated {what} cost", cost, RULE_LIMIT))

    def check_total(self, path: FieldPath) -> Iterator[FieldError]:
        """Errors if all expressions of the schema together exceed the limit."""
        if self._total <= SCHEMA_LIMIT:
            return
        self._costs.sort(key=lambda entry: -entry[0])
        for _, expensive in self._costs[:_MOST_EXPENSIVE]:
            yield forbidden(
                expensive,
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            )
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, _exceeds(what, self._total, SCHEMA_LIMIT))


def below(schema: Schema, cardinality: int | None) -> int | None:
    """How many elements or entries there can be, of all values of a schema together; None if it is open."""
    if schema.type == "array":
        most = schema.raw.get("maxItems")
    elif schema.type == "object" and schema.raw.get("additionalProperties"):
        most = schema.raw.get("maxProperties")
    else:
        return cardinality
    return None if cardinality is None or most is None else times(cardinality, max(0, int(most)))


def _exceeds(what: str, cost: int, limit: int) -> str:
    times_over = cost / limit
    factor = f"{times_over:.1f}x" if times_over >= 1.5 else f"{times_over:f}x"
    if times_over > 100:
        factor = "more than 100x"
    return (
        f"{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, "
        "maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
