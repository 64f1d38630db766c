"""Kernel parameters of pods: which ones a node sets; pure.

The safe ones change nothing outside the pod and give it no more than its share. Others, which have a
namespace of their own too, a node sets where its option ``allowed-unsafe-sysctls`` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kindling.apiserver.admission.pod_security.baseline import SYSCTLS_1_32
from kindling.node.pods.admission import Refusal
from kubecore.json import JsonObject, get_list, get_str

_FORBIDDEN = "SysctlForbidden"
_NAMESPACED = ("kernel.shm", "kernel.msg", "fs.mqueue.", "net.")
_SEMAPHORES = "kernel.sem"


def of_pod(pod: JsonObject) -> dict[str, str]:
    """The kernel parameters that a pod sets, with dots between the parts of their names."""
    found = get_list(pod, "spec", "securityContext", "sysctls")
    return {dotted(get_str(item, "name")): get_str(item, "value") for item in found}


def dotted(name: str) -> str:
    """A name with dots for its separators: one whose first is a slash has slashes for dots."""
    separator = next((char for char in name if char in "./"), ".")
    return name if separator == "." else name.translate(str.maketrans("./", "/."))


def patterns(text: str) -> tuple[str, ...]:
    """The value of ``allowed-unsafe-sysctls``: names, or beginnings of names with an asterisk, and commas.

    Raises ValueError for what is not known to have a namespace: it would be the whole machine's.
    """
    found = tuple(dotted(entry.strip()) for entry in text.split(",") if entry.strip())
    for entry in found:
        if entry != _SEMAPHORES and not entry.startswith(_NAMESPACED):
            raise ValueError(f"{entry!r} is not known to have a namespace")
    return found


def refusal(pod: JsonObject, allowed: Sequence[str]) -> Refusal | None:
    """Why the node does not set a pod's kernel parameters; `allowed` are `patterns` beside the safe ones.

    The API server refuses those of a namespace that the pod shares with its node.
    """
    for name in _forbidden(of_pod(pod), allowed):
        return Refusal(_FORBIDDEN, f'forbidden sysctl: "{name}" not allowlisted')
    return None


def _forbidden(names: Iterable[str], allowed: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name not in SYSCTLS_1_32 and not any(_matches(name, pattern) for pattern in allowed):
            yield name


def _matches(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
