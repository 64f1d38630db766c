"""Authorization: what users may, as the API server says."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.serving.frontproxy import User

REVIEWS = ResourceType("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False)
VERBS = {"GET": "get", "PUT": "update", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
"""What a method is called in rules."""


class Authorizer:
    """Asks the API server whether users may."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def refusal(self, user: User, wanted: JsonObject) -> str:
        """Why the user is not authorized; empty if he is. Raises StatusError if the API server cannot
        tell.
        """
        spec: JsonObject = {"user": user.name, "groups": list(user.groups), "resourceAttributes": wanted}
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra.items()}
        review = {"apiVersion": REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
        answer = get_object(await self._client.create(REVIEWS, review), "status")
        if answer.get("allowed") is True:
            return ""
        return get_str(answer, "reason") or "not allowed"
