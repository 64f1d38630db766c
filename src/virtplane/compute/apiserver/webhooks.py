"""The paths of virt-api's admission webhooks."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject, get_object
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver import eviction
from virtplane.compute.apiserver.admission.review import WEBHOOKS
from virtplane.compute.apiserver.admission.review import review as admit
from virtplane.compute.apiserver.eviction import EvictionWebhook
from virtplane.serving.lookups import ClientLookups

PATHS = frozenset({eviction.PATH, *WEBHOOKS})


class Webhooks:
    """Answers reviews by the path they come to."""

    def __init__(self, client: Client) -> None:
        self._evictions = EvictionWebhook(client)
        self._lookups = ClientLookups(client)

    async def review(self, path: str, review: JsonObject, config: ClusterConfig) -> JsonObject:
        """The AdmissionReview that answers `review`."""
        if path == eviction.PATH:
            return await self._evictions.review(review, config)
        answer = await admit(path, get_object(review, "request"), config, self._lookups)
        return answer.review(review)
