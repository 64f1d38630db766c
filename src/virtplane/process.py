"""Commands that run until they are stopped: their exit status, and what the log says of their end."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from kubecore.client import ConfigError
from kubecore.runtime import CannotRun, until_signalled

_Refusal = TypeVar("_Refusal", bound=Exception)

logger = logging.getLogger(__name__)

EXIT_FAILED = 1

_REFUSALS = (CannotRun, ConfigError)
"""What the user is to correct: its text says all, and a traceback nothing."""


def run_until_stopped(work: Coroutine[Any, Any, None]) -> int:
    """Run `work` until it ends, or until SIGTERM or SIGINT, and log what ended it; gives the exit status."""
    try:
        uvloop.run(until_signalled(lambda: work))
    except BaseExceptionGroup as group:
        refusals, others = group.split(_REFUSALS)
        for refusal in _singles(refusals) if refusals else ():
            logger.error("%s", refusal)
        if others:
            logger.error("a component failed, so this process ends", exc_info=others)
        return EXIT_FAILED
    except _REFUSALS as refusal:
        logger.error("%s", refusal)
        return EXIT_FAILED
    except Exception:
        logger.exception("a component failed, so this process ends")
        return EXIT_FAILED
    return 0


def _singles(group: BaseExceptionGroup[_Refusal]) -> list[_Refusal]:
    found: list[_Refusal] = []
    for error in group.exceptions:
        found += _singles(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
