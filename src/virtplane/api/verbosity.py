"""Verbosities of logs, 0 to 9, as klog and KubeVirt count them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kubecore.logs import TRACE

DEBUG_VERBOSITY = 3
TRACE_VERBOSITY = 6
"""From here on each request to the API server is logged too."""

FLAG = "v"
"""The command line flag of KubeVirt's and CDI's components that says it."""


def log_level(verbosity: int) -> int:
    """The level of the `logging` module from which on messages are logged at `verbosity`."""
    if verbosity >= TRACE_VERBOSITY:
        return TRACE
    return logging.DEBUG if verbosity >= DEBUG_VERBOSITY else logging.INFO


def of_flags(flags: Mapping[str, str]) -> int | None:
    """The verbosity that a component's flags ask for; None if they ask for none, or it is no number."""
    given = flags.get(FLAG, "")
    return int(given) if len(given) < 4 and given.isdecimal() else None
