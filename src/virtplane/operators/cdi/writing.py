"""Writing the objects of one pass over the CDI object, with events, and deleting those no longer wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kubecore import errors, resources
from kubecore.certificates import Lifetimes
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder
from kubecore.runtime.informer import Informer
from virtplane.api import cdi_names as names
from virtplane.api import resources as api
from virtplane.operators.cdi import extras, monitoring
from virtplane.operators.cdi.certificates import BUNDLE_KEY, CERTIFICATES
from virtplane.operators.cdi.product import CREATE_VERSION, PRODUCT, UPDATE_VERSION, Parameters
from virtplane.operators.kit import certificates
from virtplane.operators.kit.apply import Applier

OWN_KINDS = (
    extras.CONSTRAINTS,
    extras.POPULATORS,
    extras.ROUTES,
    monitoring.SERVICE_MONITORS,
    monitoring.PROMETHEUS_RULES,
)
_DEFINITION = resources.CUSTOM_RESOURCE_DEFINITIONS.kind
_REPLACED: tuple[ResourceType, ...] = (
    resources.DEPLOYMENTS,
    resources.SERVICES,
    resources.SERVICE_ACCOUNTS,
    resources.ROLE_BINDINGS,
    resources.ROLES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.CLUSTER_ROLES,
    resources.API_SERVICES,
    resources.MUTATING_WEBHOOK_CONFIGURATIONS,
    resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
)
"""Kinds of which nothing is kept that another version or configuration had wanted."""
_TOLD = frozenset({resources.DEPLOYMENTS.kind, resources.SERVICES.kind})
"""Kinds whose objects have events: those of all would leave no room for what matters more."""


class SelectorChanged(Exception):
    """A Deployment had another selector, which cannot be changed; it is deleted and made again."""


@dataclass(frozen=True, slots=True)
class Writing:
    """One pass over `cdi`. `informers` have what is there."""

    applier: Applier
    informers: Mapping[ResourceType, Informer]
    events: EventRecorder
    cdi: JsonObject
    version: str

    async def apply(self, *objects: JsonObject) -> None:
        """Bring objects to their wanted state, in their order. Raises StatusError, SelectorChanged."""
        for document in objects:
            await self._apply(self.completed(document))

    def completed(self, document: JsonObject) -> JsonObject:
        """An object with its owner and the versions that made and changed it.

        Definitions have no owner: the garbage collector must not take all DataVolumes with them.
        """
        live = self._live(document)
        created = meta.labels(live or {}).get(CREATE_VERSION) or self.version
        labels = {**meta.labels(document), CREATE_VERSION: created}
        if created != self.version:
            labels[UPDATE_VERSION] = self.version
        metadata = {**document["metadata"], "labels": labels}
        if document["kind"] != _DEFINITION:
            metadata["ownerReferences"] = [meta.new_controller_ref(self.cdi, api.CDIS)]
        return {**document, "metadata": metadata}

    async def certificates(
        self, parameters: Parameters, lifetimes: Lifetimes, now: datetime
    ) -> certificates.CertificatePlan:
        """Issue and renew certificates, and publish the authorities. Raises StatusError.

        What there is is read from the API server: a certificate must never be issued twice.
        """
        plan = certificates.plan(
            CERTIFICATES,
            await self._by_name(resources.SECRETS, parameters.namespace),
            {
                name: get_str(document, "data", BUNDLE_KEY)
                for name, document in (
                    await self._by_name(resources.CONFIG_MAPS, parameters.namespace)
                ).items()
            },
            parameters.namespace,
            lifetimes,
            now,
        )
        for document in (*plan.secrets, *plan.bundles):
            document["metadata"]["labels"] = parameters.labels()
            await self._apply(self.completed(document))
        return plan

    async def monitoring(self, parameters: Parameters) -> list[JsonObject]:
        """What Prometheus needs, where the cluster has it: the objects. Raises StatusError."""
        rules = monitoring.PROMETHEUS_RULES
        if not await extras.serves(self.applier.client, rules, parameters.namespace):
            return []
        wanted = monitoring.monitoring(parameters)
        await self.apply(*wanted)
        return wanted

    async def extras(self, parameters: Parameters) -> None:
        """Constraints and populators, where the cluster serves them. Raises StatusError."""
        client = self.applier.client
        if await extras.serves(client, extras.CONSTRAINTS):
            wanted = extras.constraints(parameters)
            with errors.ignoring(404):
                present = await client.get(extras.CONSTRAINTS, meta.name(wanted))
                wanted = extras.constraints(parameters, present)
            await self._ensure("SecurityContextConstraint exists", wanted)
        if await extras.serves(client, extras.POPULATORS):
            await self._ensure("volume populators exist", *extras.populators(parameters))

    async def remove_others(self, wanted: Iterable[JsonObject]) -> None:
        """Delete what the object owns and nothing wants any more. Raises StatusError."""
        kept = {(document["kind"], *meta.key(document)) for document in wanted}
        for resource in _REPLACED:
            for document in self.informers[resource].list():
                if (resource.kind, *meta.key(document)) in kept:
                    continue
                if meta.is_controlled_by(document, self.cdi):
                    await self._delete(resource, document)

    async def _apply(self, document: JsonObject) -> None:
        live = self._live(document)
        if live is not None and _selector(live) != _selector(document):
            await self.applier.delete(document)
            raise SelectorChanged(f"Deployment {meta.name(document)} is made again with another selector")
        verb = "create" if live is None else "update"
        try:
            written = await self.applier.apply(document)
        except errors.StatusError as error:
            message = f"Failed to {verb} resource {meta.name(document)}, {error}"
            self.events.event(self.cdi, "Warning", f"{verb.capitalize()}ResourceFailed", message)
            raise
        if written and document["kind"] in _TOLD:
            message = f"Successfully {verb}d resource *v1.{document['kind']} {meta.name(document)}"
            self.events.event(self.cdi, "Normal", f"{verb.capitalize()}ResourceSuccess", message)

    async def _ensure(self, what: str, *objects: JsonObject) -> None:
        """Write objects that one event stands for."""
        written = False
        try:
            for document in objects:
                written = await self.applier.apply(self.completed(document)) or written
        except errors.StatusError as error:
            message = f"Failed to ensure {what}, {error}"
            self.events.event(self.cdi, "Warning", "CreateResourceFailed", message)
            raise
        if written:
            self.events.event(self.cdi, "Normal", "CreateResourceSuccess", f"Successfully ensured {what}")

    async def _delete(self, resource: ResourceType, document: JsonObject) -> None:
        with errors.ignoring(404, 409):
            await self.applier.client.delete(
                resource, meta.name(document), meta.namespace(document) or None, uid=meta.uid(document)
            )
            message = f"Successfully deleted resource *v1.{resource.kind} {meta.name(document)}"
            self.events.event(self.cdi, "Normal", "DeleteResourceSuccess", message)

    def _live(self, document: JsonObject) -> JsonObject | None:
        informer = self.informers.get(self.applier.resource_of(document))
        return informer.get(meta.namespace(document), meta.name(document)) if informer is not None else None

    async def _by_name(self, resource: ResourceType, namespace: str) -> dict[str, JsonObject]:
        found = await self.applier.client.list(resource, namespace, label_selector=PRODUCT.selector)
        return {meta.name(document): document for document in found.get("items") or []}


def proxy_authority(plan: certificates.CertificatePlan) -> str:
    """The authorities, PEM, that verify the upload proxy."""
    found = (each for each in plan.bundles if meta.name(each) == names.UPLOAD_PROXY_BUNDLE)
    return get_str(next(found, None), "data", BUNDLE_KEY)


def _selector(document: JsonObject) -> object:
    return document["spec"]["selector"] if document["kind"] == resources.DEPLOYMENTS.kind else None
