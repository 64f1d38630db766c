"""What Pod Security's level ``restricted`` asks of a container."""

from __future__ import annotations

from kubecore.json import JsonObject


def restricted_container(user: int | None = None) -> JsonObject:
    """The security context of a container that needs no privilege; it runs as `user`, else as its image's."""
    context: JsonObject = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return context if user is None else {**context, "runAsUser": user}
