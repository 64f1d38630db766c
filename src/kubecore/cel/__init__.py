"""CEL with the Kubernetes function library and cost limits, behind one small interface.

``program.Environment(variables).compile(text)`` gives a ``Program``; ``program.evaluate(values)`` returns
plain JSON values. ``library`` lists the functions that Kubernetes adds to the language, one module for each
family.
"""

from .program import CompileError, Environment, EvaluationError, Program

__all__ = ["CompileError", "Environment", "EvaluationError", "Program"]
