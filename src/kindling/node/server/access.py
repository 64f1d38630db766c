"""Authorization of the node's endpoint by SubjectAccessReviews, as a kubelet in webhook mode does it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aiohttp.web_request import BaseRequest

from kindling.node.server.http import HttpProblem, Peer
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object
from kubecore.resources import ResourceType

_log = logging.getLogger(__name__)

_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_AREAS = {"stats": "stats", "metrics": "metrics", "logs": "log"}
"""First segment of the path -> subresource of the node; what is not named here is `nodes/proxy`."""


def attributes(node: str, request: BaseRequest) -> JsonObject:
    """The resource attributes to review for a request."""
    area = request.path.strip("/").partition("/")[0]
    return {
        "verb": _VERBS.get(request.method, request.method.lower()),
        "version": "v1",
        "resource": "nodes",
        "subresource": _AREAS.get(area, "proxy"),
        "name": node,
    }


@dataclass(frozen=True, slots=True)
class Access:
    """Reviews each request. Nothing is cached, so that a revoked right ends at once."""

    client: Client
    node: str

    async def check(self, peer: Peer, request: BaseRequest) -> None:
        """Raises HttpProblem: 403 where access is denied, 500 where the API server does not answer."""
        wanted = attributes(self.node, request)
        groups = [*sorted(peer.organisations), "system:authenticated"]
        review = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"user": peer.name, "groups": groups, "resourceAttributes": wanted},
        }
        try:
            answer = get_object(await self.client.create(_REVIEWS, review), "status")
        except (StatusError, ConnectionFailed) as error:
            text = "request of user %s is refused, the API server did not review it; send it again: %s"
            _log.error(text, peer.name, error)
            raise HttpProblem(500, "Authorization error") from error
        if answer.get("allowed") is not True:
            asked = f"verb={wanted['verb']}, resource=nodes, subresource={wanted['subresource']}"
            raise HttpProblem(403, f"Forbidden (user={peer.name}, {asked})")
