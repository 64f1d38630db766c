"""The paths of virt-api's admission webhooks."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver import eviction
from virtplane.compute.apiserver.admission.review import WEBHOOKS
from virtplane.compute.apiserver.admission.review import review as admit
from virtplane.compute.apiserver.eviction import EvictionWebhook
from virtplane.compute.apiserver.metrics import ApiMetrics
from virtplane.serving.lookups import ClientLookups

PATHS = frozenset({eviction.PATH, *WEBHOOKS})
_NEW_MACHINES = "/virtualmachines-validate"


class Webhooks:
    """Answers reviews by the path they come to."""

    def __init__(self, client: Client) -> None:
        self.metrics = ApiMetrics()
        """Of this virt-api: those of its connections are counted where they are served."""
        self._evictions = EvictionWebhook(client)
        self._lookups = ClientLookups(client)

    async def review(self, path: str, review: JsonObject, config: ClusterConfig) -> JsonObject:
        """The AdmissionReview that answers `review`."""
        if path == eviction.PATH:
            return await self._evictions.review(review, config)
        request = get_object(review, "request")
        answer = await admit(path, request, config, self._lookups)
        is_new = get_str(request, "operation") == "CREATE" and not request.get("dryRun")
        if path == _NEW_MACHINES and is_new and answer.allowed:
            self.metrics.created(get_str(request, "namespace"))
        return answer.review(review)
