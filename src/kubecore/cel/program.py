"""Compiling and evaluating expressions.

Evaluation is bounded: it ends after a fixed number of loop iterations, and expressions longer than
``MAX_EXPRESSION_BYTES`` are refused, so that no rule can stall the server. The interpreter is loaded with
the first environment, because it takes 20 MiB that a server without rules need not have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .access_checks import ASKING, Authorize

if TYPE_CHECKING:
    from google.protobuf import descriptor_pool

MAX_EXPRESSION_BYTES = 64 * 1024
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
NO_OVERLOAD = "no such overload"
_STATUS = re.compile(r"\A[A-Z_]+: (.*?)(?: \[[A-Z_]+\])?\Z", re.DOTALL)

_CONVERSION = "type conversion error from"
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"cannot convert (\w+) to (\w+)", rf"{_CONVERSION} '\1' to '\2'"),
        (r"Type conversion error from ('\w+' to '\w+')", rf"{_CONVERSION} \1"),
        (
            r"String to (Duration|Timestamp) conversion failed",
            rf"{_CONVERSION} 'string' to 'google.protobuf.\1'",
        ),
        (r"int64 out of uint64 range|double out of uint64 range", "unsigned integer overflow"),
        (r"(double|uint64) out of int64 range", "integer overflow"),
    )
)
"""What the interpreter says when it runs, and what Kubernetes says."""

_UNDECLARED = re.compile(
    r"ERROR: <input>:(\d+):(\d+): undeclared reference to '([\w.]+)'(.*?)\n \| (.*)\n \| \.*\^"
)
_SELECTED_FROM_NULL = "Applying SELECT to non-message type"
_SELECTION = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\.([A-Za-z_]\w*)")
_RENAMED = {".substring(": ".part(", ".charAt(": ".characterAt("}
_OWN_NAMES = re.compile("|".join(map(re.escape, _RENAMED)))
_GIVES_OPTIONAL = re.compile(r"(?:\.validate|(?<![\w.])format\s*\.\s*named)\(")


class CompileError(ValueError):
    """The text does not compile in this environment; the message names the position."""


class EvaluationError(ValueError):
    """The expression has no value for these variables (a missing field, division by zero, too long)."""


class Program:
    """A compiled expression."""

    def __init__(self, text: str, compiled: Any, error_type: Any) -> None:
        self.text = text
        self._compiled = compiled
        self._error_type = error_type
        self.result: Any = compiled.return_type()
        """The compiler's own type of the value; variables of other environments can have it."""
        self.return_type = _type_name(self.result.name())

    def serialized(self) -> bytes:
        """The compiled form (see ``syntax``)."""
        made: bytes = self._compiled.serialize()
        return made

    def evaluate(self, values: Mapping[str, Any], authorize: Authorize | None = None) -> Any:
        """The value as JSON (with datetime and timedelta where the expression makes them).

        `authorize` decides the checks of ``authorizer``. Raises EvaluationError.
        """
        token = ASKING.set(authorize) if authorize is not None else None
        try:
            result = self._compiled.eval(data=dict(values))
        except RuntimeError as error:
            raise EvaluationError(self._words(str(error), values)) from None
        finally:
            if token is not None:
                ASKING.reset(token)
        if result.type() == self._error_type:
            raise EvaluationError(self._words(str(result.plain_value()), values))
        return result.plain_value()

    def _words(self, message: str, values: Mapping[str, Any]) -> str:
        """The message of an evaluation error in the words of Kubernetes; null counts as an object without
        fields.
        """
        words = _runtime_words(message)
        if words == _SELECTED_FROM_NULL:
            for found in _SELECTION.finditer(self.text):
                if values.get(found[1], "") is None:
                    return f"no such key: {found[2]}"
        return words


class Environment:
    """The variables that expressions may name, with their types (see ``engine.TYPES``).

    A type is given by its name, or as the compiler's own type from `descriptors`.
    """

    def __init__(
        self, variables: Mapping[str, Any], descriptors: descriptor_pool.DescriptorPool | None = None
    ) -> None:
        from . import engine  # noqa: PLC0415 (see above: loaded when first needed)

        self._env = engine.new_environment(variables, descriptors)
        self._error_type = engine.ERROR

    def compile(self, text: str) -> Program:
        """Parse and check `text`. Raises CompileError."""
        if len(text.encode()) > MAX_EXPRESSION_BYTES:
            raise CompileError(f"expression is longer than {MAX_EXPRESSION_BYTES} bytes")
        try:
            return Program(text, self._env.compile(_rewritten(text)), self._error_type)
        except RuntimeError as error:
            raise CompileError(_roots_first(_plain(str(error)))) from None


def _rewritten(text: str) -> str:
    """Rewrite calls that the interpreter does not support.

    Python functions cannot return optional values: they return a list, whose first element ``[?0]`` is the
    optional value. Functions that the interpreter gets wrong at the end of a string are renamed to this
    package's implementation.
    """
    text, done = _OWN_NAMES.sub(lambda found: _RENAMED[found[0]], text), 0
    while found := _GIVES_OPTIONAL.search(text, done):
        done = _closing(text, found.end()) + 1
        text, done = f"{text[:done]}[?0]{text[done:]}", found.end()
    return text


def _closing(text: str, start: int) -> int:
    """The position of the parenthesis that closes one opened before `start`."""
    depth, quote = 1, ""
    for position in range(start, len(text)):
        char = text[position]
        if quote:
            quote = "" if char == quote and text[position - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return position
    return len(text)


def _plain(message: str) -> str:
    found = _STATUS.match(message)
    return found[1] if found else message


def _roots_first(message: str) -> str:
    """Report the root of an unknown dotted name, at its position."""
    return _UNDECLARED.sub(_report_root, message)


def _report_root(found: re.Match[str]) -> str:
    line, column, name, rest, text = found[1], int(found[2]), found[3], found[4], found[5]
    root = name.partition(".")[0]
    start = text.rfind(root, 0, column)
    if "." not in name or start < 0:
        return found[0]
    return (
        f"ERROR: <input>:{line}:{start + 1}: undeclared reference to '{root}'{rest}\n | {text}\n | "
        + "." * start
        + "^"
    )


def _runtime_words(message: str) -> str:
    """The words of Kubernetes for an error of evaluation."""
    text = _plain(message)
    if found := re.search(r'Key not found in map : "?(.*?)"?\Z', text, re.DOTALL):
        return f"no such key: {found[1]}"
    if found := re.search(r"Index error: index=(-?\d+)", text):
        return f"index out of bounds: {found[1]}"
    if "Iteration budget exceeded" in text:
        return OUT_OF_BUDGET
    if text.startswith("divide by zero"):
        return "division by zero"
    if text.startswith("modulus by zero"):
        return "modulus by zero"
    if text.startswith("No matching overloads found"):
        return NO_OVERLOAD
    for pattern, words in _WORDS:
        if found := pattern.fullmatch(text):
            return found.expand(words)
    return text


def _type_name(name: str) -> str:
    """The CEL name of a type: ``LIST<STRING>`` as ``list(string)``; names of opaque types stay as they
    are.
    """
    simple = {
        "LIST",
        "MAP",
        "STRING",
        "INT",
        "UINT",
        "BOOL",
        "BYTES",
        "DOUBLE",
        "DYN",
        "NULL",
        "TYPE",
        "ERROR",
    }
    special = {"TIMESTAMP": "timestamp", "DURATION": "duration", "NULL": "null_type"}
    text = name.replace("<", "(").replace(">", ")")
    return re.sub(
        r"\b[A-Z]+\b",
        lambda found: special.get(found[0]) or (found[0].lower() if found[0] in simple else found[0]),
        text,
    )
