"""The paths under which the API server asks for admission."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.runtime import Manager
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver import eviction
from virtplane.compute.apiserver.eviction import EvictionWebhook

PATHS = frozenset({eviction.PATH})


class Webhooks:
    """Answers reviews by the path they come to."""

    def __init__(self, client: Client, manager: Manager, evictions: EvictionWebhook) -> None:
        self._evictions = evictions

    async def review(self, path: str, review: JsonObject, config: ClusterConfig) -> JsonObject:
        """The AdmissionReview that answers `review`."""
        return await self._evictions.review(review, config)
