"""What goes wrong in a cluster under test, and what is not there yet."""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Callable
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


ANSWERS_LOST = (OSError, http.client.HTTPException)
"""What a request raises whose answer was lost on the way."""


def work_off(todo: deque[Callable[[], None]]) -> bool:
    """Make requests in their order until one is not answered; gives whether all are done.

    Raises ApiError for a request that is wrong, whoever is killed.
    """
    try:
        while todo:
            todo[0]()
            todo.popleft()
    except ANSWERS_LOST:
        return False
    except ApiError as error:
        # Not yet: the namespace's account is being made, an admission webhook's server was killed.
        if error.code < 500 and error.code not in (403, 409, 429):
            raise
        return False
    return True
