"""Whether a claim for storage has its volume."""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from kubecore.objects import meta

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Written with the volume's name, after the volume was given to the claim; the status follows."""


def is_bound(claim: JsonObject) -> bool:
    """Whether the claim is bound. A scheduler does not wait until the status says so, nor need a node."""
    return bool(get_str(claim, "spec", "volumeName")) and BIND_COMPLETED in meta.annotations(claim)
