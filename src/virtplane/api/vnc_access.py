"""Names around tokens for guests' displays: who issues them, and what a machine has for them."""

from __future__ import annotations

TOKEN_GROUP = "token.kubevirt.io"
"""The aggregated group in which tokens are asked for. virt-api serves it."""
TOKEN_VERSIONS = ("v1", "v1alpha1")
ISSUER = "vm-console-proxy"
"""The service account that makes the accounts of machines, and their tokens; a label of theirs says so."""
GATE = "DeployVmConsoleProxy"
"""The feature gate, as the setting of SSP is called."""
GENERATOR_ROLE = f"{TOKEN_GROUP}:generate"
SUFFIX = "-vnc-access"
"""What the name of a machine's account, role and role binding ends in."""


def access_name(machine: str) -> str:
    """The name of what a machine has for its tokens."""
    return f"{machine}{SUFFIX}"
