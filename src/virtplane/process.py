"""Commands that run until they are stopped: their exit status, and what the log says of their end."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

import uvloop

from kubecore.runtime import CannotRun, until_signalled

logger = logging.getLogger(__name__)

EXIT_FAILED = 1


def run_until_stopped(work: Coroutine[Any, Any, None]) -> int:
    """Run `work` until it ends, or until SIGTERM or SIGINT, and log what ended it; gives the exit status."""
    try:
        uvloop.run(until_signalled(lambda: work))
    except BaseExceptionGroup as group:
        refusals, others = group.split(CannotRun)
        for refusal in _singles(refusals) if refusals else ():
            logger.error("%s", refusal)
        if others:
            logger.error("a component failed, so this process ends", exc_info=others)
        return EXIT_FAILED
    except CannotRun as refusal:
        logger.error("%s", refusal)
        return EXIT_FAILED
    except Exception:
        logger.exception("a component failed, so this process ends")
        return EXIT_FAILED
    return 0


def _singles(group: BaseExceptionGroup[CannotRun]) -> list[CannotRun]:
    found: list[CannotRun] = []
    for error in group.exceptions:
        found += _singles(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
