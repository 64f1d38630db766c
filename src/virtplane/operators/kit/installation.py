"""An installation in stages; each stage depends on the ones before it."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject


@dataclass(frozen=True, slots=True)
class Installation:
    """Objects by stage. Certificates come between `foundation` and `components`."""

    foundation: tuple[JsonObject, ...]
    """Definitions, accounts, roles, services, policies."""
    components: tuple[JsonObject, ...]
    """What runs."""
    entry: tuple[JsonObject, ...]
    """Webhooks and aggregated services: they need components that answer."""
    content: tuple[JsonObject, ...] = ()
    """Objects of the product's own kinds: they pass through the webhooks."""
    withdrawn: tuple[JsonObject, ...] = ()
    """What other settings would install, and these do not."""
