"""Options of nodes, named as the flags of a kubelet; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kindling.node.eviction.thresholds import SHARED_DISK_DEFAULTS, SIGNALS, Threshold
from kindling.node.pods import sysctls
from kubecore.objects.quantity import Quantity

_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")


class OptionProblem(ValueError):
    """An option that is unknown, or whose value is not right."""


@dataclass(frozen=True)
class NodeOptions:
    """The options of one node. Reserved amounts are those of a kubelet's flags of that name."""

    system_reserved: Mapping[str, Quantity] = field(default_factory=dict)
    kube_reserved: Mapping[str, Quantity] = field(default_factory=dict)
    eviction_hard: Mapping[str, Threshold] = field(default_factory=lambda: dict(SHARED_DISK_DEFAULTS))
    pressure_transition_seconds: float = 300.0
    max_pods: int = 110
    pod_max_pids: int = 4096
    """The most processes and threads of one pod: stops a fork bomb, and leaves enough for a large guest."""
    image_gc_high: int = 100
    image_gc_low: int = 80
    """Unused images are removed under disk pressure, and from the first percentage on, down to the second."""
    cpu_manager_policy: str = "none"
    reserved_cpus: frozenset[int] = frozenset()
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    """Kernel parameters that pods may set beside the safe ones: names, or beginnings with an asterisk."""

    def reserved(self, resource: str) -> Quantity:
        """What pods may not request of a resource, evictions aside."""
        if resource == "cpu" and self.reserved_cpus:
            return Quantity.of(len(self.reserved_cpus))
        none = Quantity.of(0)
        return self.system_reserved.get(resource, none) + self.kube_reserved.get(resource, none)


def parse(options: Sequence[str]) -> NodeOptions:
    """Options written ``NAME=VALUE``; later ones win. Raises OptionProblem."""
    found = NodeOptions()
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name not in _PARSERS:
            known = ", ".join(sorted(_PARSERS))
            raise OptionProblem(f"{option!r} is no option of nodes; write NAME=VALUE with one of {known}")
        attribute, read = _PARSERS[name]
        try:
            found = replace(found, **{attribute: read(value)})
        except ValueError as error:
            raise OptionProblem(f"{option!r}: {error}") from error
    if found.cpu_manager_policy == "static" and found.reserved("cpu").is_zero:
        raise OptionProblem(
            "cpu-manager-policy=static needs reserved processors: "
            "reserved-cpus, or cpu in system-reserved or kube-reserved"
        )
    if found.image_gc_low >= found.image_gc_high:
        raise OptionProblem("image-gc-low-threshold must be below image-gc-high-threshold")
    return found


def _amounts(text: str) -> Mapping[str, Quantity]:
    amounts = {}
    for entry in filter(None, text.split(",")):
        name, equals, value = entry.partition("=")
        if not equals or name not in _RESERVABLE:
            raise ValueError(f"{entry!r} is not RESOURCE=QUANTITY of {', '.join(_RESERVABLE)}")
        amounts[name] = Quantity.parse(value)
    return amounts


def _thresholds(text: str) -> Mapping[str, Threshold]:
    """Thresholds written ``SIGNAL<QUANTITY``. Signals that are not named have none, as for a kubelet."""
    found = {}
    for entry in filter(None, text.split(",")):
        signal, less, value = entry.partition("<")
        if not less or signal not in SIGNALS:
            raise ValueError(f"{entry!r} is not SIGNAL<QUANTITY of {', '.join(SIGNALS)}")
        found[signal] = Threshold.parse(signal, value)
    return found


def _percent(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 100:
        raise ValueError("not a percentage")
    return number


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def _policy(text: str) -> str:
    if text not in ("none", "static"):
        raise ValueError("must be none or static")
    return text


def parse_cpus(text: str) -> frozenset[int]:
    """A list of processors as the kernel writes it, for example ``0-2,5``. Raises ValueError."""
    found: set[int] = set()
    for entry in filter(None, text.strip().split(",")):
        first, dash, last = entry.partition("-")
        begin, end = int(first), int(last if dash else first)
        if begin < 0 or end < begin or end > 65535:
            raise ValueError(f"{entry!r} is no range of processors")
        found.update(range(begin, end + 1))
    return frozenset(found)


_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "system-reserved": ("system_reserved", _amounts),
    "kube-reserved": ("kube_reserved", _amounts),
    "eviction-hard": ("eviction_hard", _thresholds),
    "eviction-pressure-transition-period-seconds": ("pressure_transition_seconds", float),
    "max-pods": ("max_pods", _positive),
    "pod-max-pids": ("pod_max_pids", _positive),
    "image-gc-high-threshold": ("image_gc_high", _percent),
    "image-gc-low-threshold": ("image_gc_low", _percent),
    "cpu-manager-policy": ("cpu_manager_policy", _policy),
    "reserved-cpus": ("reserved_cpus", parse_cpus),
    "allowed-unsafe-sysctls": ("allowed_unsafe_sysctls", sysctls.patterns),
}
