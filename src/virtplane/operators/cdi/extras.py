"""What only some clusters serve: security context constraints, Routes, the registry of populators."""

from __future__ import annotations

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder
from virtplane.api import cdi_names as names
from virtplane.api import resources as api
from virtplane.operators.cdi.product import INJECT_PROXY_CERTIFICATE, Parameters, made
from virtplane.operators.kit.apply import contains

CONSTRAINTS = api.SECURITY_CONTEXT_CONSTRAINTS
ROUTES = ResourceType("route.openshift.io", "v1", "routes", "Route")
POPULATORS = ResourceType("populator.storage.k8s.io", "v1beta1", "volumepopulators", "VolumePopulator", False)

_CONSTRAINT = "containerized-data-importer"
_SOURCES = (
    api.VOLUME_IMPORT_SOURCES,
    api.VOLUME_CLONE_SOURCES,
    api.VOLUME_UPLOAD_SOURCES,
    api.OPENSTACK_VOLUME_POPULATORS,
    api.OVIRT_VOLUME_POPULATORS,
)


async def serves(client: Client, resource: ResourceType, namespace: str | None = None) -> bool:
    """Whether the cluster knows a kind. Raises StatusError, ConnectionFailed.

    `namespace` is where namespaced kinds may be read.
    """
    try:
        await client.list(resource, namespace, limit=1)
    except errors.StatusError as error:
        if errors.is_not_found(error):
            return False
        raise
    return True


def constraints(parameters: Parameters, present: JsonObject | None = None) -> JsonObject:
    """Which pods the accounts of CDI may run, on OpenShift; users that `present` names stay."""
    accounts = (names.CONTROLLER_ACCOUNT, names.CRON_ACCOUNT)
    users = [f"system:serviceaccount:{parameters.namespace}:{account}" for account in accounts]
    kept = [user for user in get_list(present, "users") if user not in users]
    return made(
        parameters,
        CONSTRAINTS.api_version,
        CONSTRAINTS.kind,
        _CONSTRAINT,
        allowPrivilegedContainer=False,
        allowPrivilegeEscalation=False,
        allowHostDirVolumePlugin=False,
        allowHostIPC=False,
        allowHostNetwork=False,
        allowHostPID=False,
        allowHostPorts=False,
        readOnlyRootFilesystem=False,
        requiredDropCapabilities=["ALL"],
        runAsUser={"type": "MustRunAsNonRoot"},
        seLinuxContext={"type": "MustRunAs"},
        supplementalGroups={"type": "MustRunAs"},
        fsGroup={"type": "RunAsAny"},
        seccompProfiles=["runtime/default"],
        users=kept + users,
        volumes=sorted(
            (
                "configMap",
                "csi",
                "downwardAPI",
                "emptyDir",
                "ephemeral",
                "persistentVolumeClaim",
                "projected",
                "secret",
            )
        ),
    )


def populators(parameters: Parameters) -> list[JsonObject]:
    """That CDI fills claims of these sources, for who checks the sources of claims."""
    return [
        made(
            parameters,
            POPULATORS.api_version,
            POPULATORS.kind,
            resource.kind.lower(),
            sourceKind={"group": resource.group, "kind": resource.kind},
        )
        for resource in _SOURCES
    ]


def route(parameters: Parameters, authority: str) -> JsonObject:
    """The way from outside to the upload proxy, which `authority` (PEM) verifies, on OpenShift."""
    document = made(
        parameters,
        ROUTES.api_version,
        ROUTES.kind,
        names.UPLOAD_PROXY,
        namespaced=True,
        spec={
            "to": {"kind": "Service", "name": names.UPLOAD_PROXY},
            "tls": {
                "termination": "reencrypt",
                "insecureEdgeTerminationPolicy": "Redirect",
                "destinationCACertificate": authority,
            },
        },
    )
    # An upload ends when the image is converted, which takes long.
    document["metadata"]["annotations"] = {"haproxy.router.openshift.io/timeout": "60m"}
    return document


class Routes:
    """Keeps the Route of the upload proxy, and the authority in those that users made for it."""

    def __init__(self, client: Client, namespace: str, events: EventRecorder) -> None:
        self._client = client
        self._namespace = namespace
        self._events = events

    async def ensure(self, wanted: JsonObject) -> bool:
        """Make the Route, or correct it; returns whether that was needed. Raises StatusError.

        A patch leaves the host alone, which only some may change.
        """
        live = await self._live(wanted)
        if live is None:
            try:
                await self._client.create(ROUTES, wanted, self._namespace)
            except errors.StatusError as error:
                if not errors.is_already_exists(error):
                    raise
            return True
        if contains(live.get("spec"), wanted["spec"]):
            return False
        patch = {"spec": wanted["spec"]}
        await self._client.patch(ROUTES, names.UPLOAD_PROXY, patch, self._namespace, type="merge")
        return True

    async def inject(self, authority: str) -> None:
        """Write the authority into the Routes whose annotation asks for it. Raises StatusError."""
        found = await self._client.list(ROUTES, self._namespace)
        for document in found.get("items") or []:
            if meta.annotations(document).get(INJECT_PROXY_CERTIFICATE) != "true":
                continue
            tls = document.get("spec", {}).get("tls")
            if not tls or get_str(tls, "destinationCACertificate") == authority:
                continue
            patch = {"spec": {"tls": {"destinationCACertificate": authority}}}
            name = meta.name(document)
            await self._client.patch(ROUTES, name, patch, self._namespace, type="merge")
            message = "Successfully updated Route destination CA certificate"
            self._events.event(
                {**document, "apiVersion": ROUTES.api_version, "kind": ROUTES.kind},
                "Normal",
                "UploadProxyRouteInjectSuccess",
                message,
            )

    async def _live(self, wanted: JsonObject) -> JsonObject | None:
        with errors.ignoring(404):
            return await self._client.get(ROUTES, meta.name(wanted), self._namespace)
        return None
