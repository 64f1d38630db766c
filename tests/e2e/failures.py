"""What goes wrong in a cluster under test, and what is not there yet."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


class NotInTime(AssertionError):
    """Something that was waited for did not happen."""


class NotThere(AssertionError):
    """What is looked for is not there, or not yet."""


class ApiError(Exception):
    """The API refused; `code` is the HTTP status."""

    def __init__(self, code: int, status: Document) -> None:
        super().__init__(f"{code} {status.get('message', '')}")
        self.code = code
