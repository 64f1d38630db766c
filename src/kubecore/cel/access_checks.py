"""Access checks of the CEL ``authorizer``, and the authorizer that decides them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """One authorization check. `account` is ``namespace/name`` of a service account, empty for the user."""

    verb: str
    account: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


Authorize = Callable[[AccessCheck], tuple[bool, str]]
"""(allowed, reason)."""

ASKING: ContextVar[Authorize] = ContextVar("authorize")
"""The authorizer of the evaluation that is running."""
