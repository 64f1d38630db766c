"""Compiling and evaluating expressions.

Evaluation is bounded: it ends when it has cost as much as Kubernetes lets it cost, and expressions longer
than ``MAX_EXPRESSION_BYTES`` are refused, so that no rule can stall the server. The parser is loaded with the
first expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from . import interpreter
from .access_checks import ASKING, Authorize
from .records import Records
from .syntax import Node
from .values import OUT_OF_BUDGET, CostExceededError, EvaluationError

MAX_EXPRESSION_BYTES: Final = 64 * 1024
CALL_LIMIT: Final = 1_000_000
"""Most that one evaluation may cost."""
OBJECT_LIMIT: Final = 10_000_000
"""Most that all rules about one object, or all expressions of a policy about one request, may cost."""


class CompileError(ValueError):
    """The text does not compile in this environment; the message names the position."""


class Budget:
    """What evaluations that belong together may still cost."""

    def __init__(self, limit: int = OBJECT_LIMIT) -> None:
        self.left = limit


class BudgetExceededError(CostExceededError):
    """Nothing is left for further evaluations."""


class Program:
    """A compiled expression."""

    def __init__(
        self,
        text: str,
        tree: Node,
        return_type: str,
        variables: Mapping[str, str],
        *,
        records: Records | None = None,
        limit: int = CALL_LIMIT,
    ) -> None:
        self.text = text
        self.tree = tree
        self.return_type = return_type
        """The name of the value's type."""
        self._limit = limit
        self._step = interpreter.compiled(tree, variables, records)

    def evaluate(
        self, values: Mapping[str, Any], authorize: Authorize | None = None, budget: Budget | None = None
    ) -> Any:
        """The value as JSON (with datetime and timedelta where the expression makes them).

        `authorize` decides the checks of ``authorizer``. What the evaluation costs is taken from `budget`.
        Raises EvaluationError; CostExceededError for one evaluation that costs too much, BudgetExceededError
        when the budget is used up.
        """
        run = interpreter.Run(values, self._limit)
        token = ASKING.set(authorize) if authorize is not None else None
        try:
            return self._step(run)
        except RecursionError:
            raise EvaluationError("values are nested too deeply") from None
        finally:
            if token is not None:
                ASKING.reset(token)
            if budget is not None:
                budget.left -= self._limit - max(run.left, 0)
                if budget.left < 0:
                    raise BudgetExceededError(OUT_OF_BUDGET)


class Environment:
    """The variables that expressions may name, with the names of their types (see ``types``).

    These may be types of `records`. One evaluation may cost `limit`.
    """

    def __init__(
        self, variables: Mapping[str, str], records: Records | None = None, limit: int = CALL_LIMIT
    ) -> None:
        self._variables = dict(variables)
        self._records = records
        self._limit = limit

    def compile(self, text: str) -> Program:
        """Parse and check `text`. Raises CompileError."""
        from .type_checking import check_types  # noqa: PLC0415 (loads the parser)

        if len(text.encode()) > MAX_EXPRESSION_BYTES:
            raise CompileError(f"expression is longer than {MAX_EXPRESSION_BYTES} bytes")
        checked = check_types(text, {}, self._variables, literals=False, records=self._records)
        if checked.problem or checked.tree is None:
            raise CompileError(checked.problem)
        return Program(
            text, checked.tree, checked.type, self._variables, records=self._records, limit=self._limit
        )
