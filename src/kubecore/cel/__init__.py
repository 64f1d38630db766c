"""CEL with the Kubernetes function library and cost limits, behind one small interface.

``program.Environment(variables).compile(text)`` gives a ``Program``; ``program.evaluate(values)`` returns
plain JSON values. ``type_checking.check_types`` says what Kubernetes has against an expression; what may be
called with which types is the table in ``signatures``. The functions that Kubernetes adds to the language are
in one module for each family.
"""

from .program import CompileError, Environment, EvaluationError, Program

__all__ = ["CompileError", "Environment", "EvaluationError", "Program"]
