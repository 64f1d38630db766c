"""CEL with the Kubernetes function library and cost limits, behind one small interface.

``program.Environment(variables).compile(text)`` gives a ``Program``; ``program.evaluate(values)`` returns
its value, of which ``documents.document`` makes JSON. ``records`` are objects of types that the caller
declares. ``type_checking.check_types`` returns the type errors that Kubernetes reports for an expression; the
table in ``signatures`` lists all functions with their types. Each family of functions that Kubernetes adds to
the language has a module.
"""

from .program import Budget, BudgetExceededError, CompileError, Environment, Program
from .values import CostExceededError, EvaluationError

__all__ = [
    "Budget",
    "BudgetExceededError",
    "CompileError",
    "CostExceededError",
    "Environment",
    "EvaluationError",
    "Program",
]
