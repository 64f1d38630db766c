"""Troubles of what is tried again and again: one that lasts is logged once."""

from __future__ import annotations

import logging


class Trouble:
    """What keeps one thing from succeeding at present; `message` says what fails and what follows."""

    def __init__(self, logger: logging.Logger, message: str, **extra: str) -> None:
        self._logger = logger
        self._message = message
        self._extra = extra
        self._said = ""

    def met(self, error: Exception) -> None:
        """It failed: logged, unless the last attempt failed for the same reason."""
        if str(error) != self._said:
            self._said = str(error)
            self._logger.warning(self._message, extra={**self._extra, "err": self._said})

    def over(self) -> None:
        """It succeeded: the next failure is logged."""
        self._said = ""
