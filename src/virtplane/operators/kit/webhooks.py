"""Registration of webhooks and of aggregated API groups."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.operators.kit.product import Product

TIMEOUT_SECONDS = 10

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook: its rules and its path."""

    name: str
    path: str
    operations: tuple[str, ...]
    group: str
    versions: tuple[str, ...]
    resources: tuple[str, ...]
    condition: tuple[str, str] | None = None
    side_effects: str = "None"
    review_versions: tuple[str, ...] = ("v1",)
    failure_policy: str = "Fail"
    timeout_seconds: int = TIMEOUT_SECONDS
    match_policy: str = ""
    """``Exact`` or ``Equivalent``; empty: the API server's default."""
    object_labels: tuple[tuple[str, str], ...] = ()
    """Labels that objects must have to be reviewed."""
    reinvocation: str = ""
    """``IfNeeded``: asked again after others have changed the object; empty: the API server's default."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service that the API server calls, and the CA bundle for it."""

    product: Product
    namespace: str
    service: str
    secret: str
    """The secret of the service's certificate."""
    ca_bundle: str
    """PEM."""

    def validating(self, name: str, webhooks: Sequence[Webhook]) -> JsonObject:
        """The configuration of the service's validating webhooks."""
        return self._configuration("ValidatingWebhookConfiguration", name, webhooks)

    def mutating(self, name: str, webhooks: Sequence[Webhook]) -> JsonObject:
        """The configuration of the service's mutating webhooks."""
        return self._configuration("MutatingWebhookConfiguration", name, webhooks)

    def aggregated(self, component: str, group: str, version: str) -> JsonObject:
        """The APIService for a group version that the service serves."""
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": self._metadata(f"{version}.{group}", component),
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "caBundle": self._encoded_bundle(),
                "service": {"name": self.service, "namespace": self.namespace, "port": 443},
            },
        }

    def _configuration(self, kind: str, name: str, webhooks: Sequence[Webhook]) -> JsonObject:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": self._metadata(name, name),
            "webhooks": [self._webhook(webhook) for webhook in webhooks],
        }

    def _webhook(self, webhook: Webhook) -> JsonObject:
        service = {"name": self.service, "namespace": self.namespace, "path": webhook.path, "port": 443}
        document: JsonObject = {
            "name": webhook.name,
            "admissionReviewVersions": list(webhook.review_versions),
            "clientConfig": {"service": service, "caBundle": self._encoded_bundle()},
            "failurePolicy": webhook.failure_policy,
            "sideEffects": webhook.side_effects,
            "timeoutSeconds": webhook.timeout_seconds,
            "rules": [
                {
                    "operations": list(webhook.operations),
                    "apiGroups": [webhook.group],
                    "apiVersions": list(webhook.versions),
                    "resources": list(webhook.resources),
                }
            ],
        }
        if webhook.match_policy:
            document["matchPolicy"] = webhook.match_policy
        if webhook.reinvocation:
            document["reinvocationPolicy"] = webhook.reinvocation
        if webhook.object_labels:
            document["objectSelector"] = {"matchLabels": dict(webhook.object_labels)}
        if webhook.condition:
            name, expression = webhook.condition
            document["matchConditions"] = [{"name": name, "expression": expression}]
        return document

    def _metadata(self, name: str, component: str) -> JsonObject:
        return {
            "name": name,
            "labels": self.product.labels(component),
            "annotations": {self.product.certificate_annotation: self.secret},
        }

    def _encoded_bundle(self) -> str:
        return base64.b64encode(self.ca_bundle.encode()).decode()
