"""Which hooks of plugins are called, in which order, and what a failure of one means. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from virtplane.api.durations import parse_duration
from virtplane.api.plugin_v1alpha1.plugin import DomainHook, NodeHook, Plugin

GATE: Final = "Plugins"
PRE_START, POST_START, PRE_STOP, POST_STOP = "PreVMStart", "PostVMStart", "PreVMStop", "PostVMStop"
POINTS: Final = (PRE_START, POST_START, PRE_STOP, POST_STOP)
"""Points of a guest's life at which node hooks are called. Those of migrations never come yet."""

BOOT: Final = "Boot"
"""Why a domain is made, as sidecars are told."""

DEFAULT_SECONDS: Final = 30.0
MOST_SECONDS: Final = 300.0
"""No call takes longer, whatever a plugin says: nothing else is done about its guest meanwhile."""

IGNORE: Final = "Ignore"


def ordered(plugins: Iterable[Plugin]) -> list[Plugin]:
    """Plugins in the order of their names, in which all their hooks are called."""
    return sorted(plugins, key=lambda plugin: plugin.metadata.name)


def may_fail(plugin: Plugin, hook: DomainHook | NodeHook) -> bool:
    """Whether a failure of the hook is passed over. Its own strategy counts before the plugin's."""
    return (hook.failure_strategy or plugin.spec.failure_strategy) == IGNORE


def seconds(hook: DomainHook | NodeHook) -> float:
    """How long a call of the hook may take."""
    try:
        wanted = parse_duration(hook.timeout).total_seconds() if hook.timeout else 0.0
    except ValueError:
        # Admission refuses it; the object may be older than that.
        wanted = 0.0
    return min(wanted, MOST_SECONDS) if wanted > 0 else DEFAULT_SECONDS
