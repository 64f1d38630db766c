"""Keeps the one CDIConfig, ``config``."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Mapping

from msgspec import field

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.objects.structs import UnfitDocument, decode, encode
from kubecore.resources import SECRETS, STORAGE_CLASSES, ResourceType
from kubecore.runtime import DONE, Controller, Informer, Key, Manager, Result
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig, CDIConfigSpec, ImportProxy
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import StorageClass
from virtplane.cluster.objects import status_patch
from virtplane.storage.cdi.controller.config import decisions
from virtplane.storage.cdi.controller.config.decisions import IngressSpec, Published
from virtplane.storage.cdi.controller.installation import active, owner_reference, singleton_labels
from virtplane.storage.csi.parts import members_patch, patch, versioned

logger = logging.getLogger(__name__)

NAME = "cdi-config-controller"
CONFIG = "config"
INGRESSES = ResourceType("networking.k8s.io", "v1", "ingresses", "Ingress", True)
ROUTES = ResourceType("route.openshift.io", "v1", "routes", "Route", True)
PROXIES = ResourceType("config.openshift.io", "v1", "proxies", "Proxy", False)
OPENSHIFT = frozenset({ROUTES, PROXIES})
"""Kinds that are read where the cluster serves them."""

_CERTIFICATE = "tls.crt"
_KEY: Key = ("", CONFIG)


class Ingress(ApiStruct, kw_only=True):
    """What publishes services to the outside."""

    metadata: ObjectMeta = ObjectMeta()
    spec: IngressSpec = IngressSpec()


class RouteTarget(ApiStruct, kw_only=True):
    """The service behind a Route."""

    name: str = ""


class RouteSpec(ApiStruct, kw_only=True):
    """Where a Route leads."""

    host: str = ""
    to: RouteTarget = RouteTarget()


class Route(ApiStruct, kw_only=True):
    """OpenShift's way to publish a service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RouteSpec = RouteSpec()


class ProxyStatus(ApiStruct, kw_only=True):
    """The proxy that all of an OpenShift cluster uses."""

    http_proxy: str | None = None
    https_proxy: str | None = None
    no_proxy: str | None = None


class TrustedCA(ApiStruct, kw_only=True):
    """A ConfigMap with authorities."""

    name: str = ""


class ProxySpec(ApiStruct, kw_only=True):
    """How the proxy is trusted."""

    trusted_ca: TrustedCA = field(default=TrustedCA(), name="trustedCA")


class Proxy(ApiStruct, kw_only=True):
    """OpenShift's setting of a proxy for the cluster; the one that counts is ``cluster``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProxySpec = ProxySpec()
    status: ProxyStatus = ProxyStatus()


class SecretData(ApiStruct, kw_only=True):
    """What a Secret holds."""

    data: Mapping[str, str] = field(default_factory=dict)


def _always(_: object) -> list[Key]:
    return [_KEY]


class ConfigController:
    """Reconciles the CDIConfig; `served` are the kinds of OpenShift that the cluster has."""

    def __init__(
        self, client: Client, manager: Manager, namespace: str, served: frozenset[ResourceType] = frozenset()
    ) -> None:
        self._client, self._namespace = client, namespace
        self._configs = manager.informer(kinds.CDI_CONFIGS, struct=CDIConfig)
        self._installations: Informer[CDI] = manager.informer(kinds.CDIS, struct=CDI)
        self._classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self._ingresses = manager.informer(INGRESSES, namespace=namespace, struct=Ingress)
        self._routes = (
            manager.informer(ROUTES, namespace=namespace, struct=Route) if ROUTES in served else None
        )
        self._proxies = manager.informer(PROXIES, struct=Proxy) if PROXIES in served else None
        controller = Controller(NAME, self.reconcile, max_delay=60.0)
        controller.watch(self._configs)
        controller.watch(self._installations, _always)
        controller.watch(self._classes, _always)
        controller.watch(self._ingresses, _always)
        if self._routes is not None:
            controller.watch(self._routes, _always)
        if self._proxies is not None:
            controller.watch(self._proxies, _always)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Make the config, or bring it up to date. Raises StatusError, ConnectionFailed."""
        installation = active(self._installations)
        try:
            config = self._configs.get(*key)
        except UnfitDocument as error:
            logger.error("the CDIConfig cannot be decoded, so it stays as it is: %s", error)
            return DONE
        if installation is None:
            return DONE
        if config is None:
            await self._create(installation)
        elif not config.metadata.is_being_deleted:
            await self._update(config, installation)
        return DONE

    async def _create(self, installation: CDI) -> None:
        kind = kinds.CDI_CONFIGS
        document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": CONFIG,
                "labels": singleton_labels(installation),
                "ownerReferences": [encode(owner_reference(installation))],
            },
            "spec": encode(decisions.wanted_spec(installation, CDIConfigSpec())),
        }
        try:
            await self._client.create(kind, document)
        except StatusError as error:
            if not is_already_exists(error):
                raise

    async def _update(self, config: CDIConfig, installation: CDI) -> None:
        kind, spec = kinds.CDI_CONFIGS, decisions.wanted_spec(installation, config.spec)
        if spec != config.spec:
            changes = members_patch("/spec", encode(config.spec), encode(spec))
            await patch(self._client, kind, config, versioned(config, changes))
            return  # its event brings the config back
        status = decisions.wanted_status(spec, self._classes.list(), await self._published(), self._proxy())
        # The status has no subresource of its own.
        changes = status_patch(config, type(status), config.status, encode(status))
        await patch(self._client, kind, config, changes)

    async def _published(self) -> Published:
        """Where the upload proxy is reached: an Ingress comes before a Route. Raises StatusError."""
        for ingress in sorted(self._ingresses.list(), key=lambda each: each.metadata.name):
            host = decisions.host_of(ingress.spec)
            if host:
                return Published(host, await self._authority(ingress.spec))
        for route in self._routes.list() if self._routes is not None else ():
            if route.spec.to.name == decisions.UPLOAD_PROXY and route.spec.host:
                return Published(route.spec.host)
        return Published()

    async def _authority(self, spec: IngressSpec) -> str | None:
        """The certificate chain of an Ingress, by which clients verify its host. Raises StatusError."""
        name = next((each.secret_name for each in spec.tls if each.secret_name), "")
        if not name:
            return None
        try:
            secret = decode(SecretData, await self._client.get(SECRETS, name, self._namespace))
            return base64.b64decode(secret.data.get(_CERTIFICATE, ""), validate=True).decode() or None
        except StatusError as error:
            if not is_not_found(error):
                raise
        except (UnfitDocument, binascii.Error, UnicodeDecodeError) as error:
            logger.error("the certificate in secret %s/%s cannot be read: %s", self._namespace, name, error)
        return None

    def _proxy(self) -> ImportProxy | None:
        """The proxy of an OpenShift cluster."""
        found = self._proxies.get("", "cluster") if self._proxies is not None else None
        if found is None:
            return None
        return ImportProxy(
            http_proxy=found.status.http_proxy,
            https_proxy=found.status.https_proxy,
            no_proxy=found.status.no_proxy,
            trusted_ca_proxy=found.spec.trusted_ca.name or None,
        )
