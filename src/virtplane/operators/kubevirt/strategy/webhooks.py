"""KubeVirt's webhooks and its aggregated API group."""

from __future__ import annotations

from dataclasses import replace

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.api.vnc_access import ISSUER, TOKEN_GROUP, TOKEN_VERSIONS
from virtplane.operators.kit.webhooks import CREATE, DELETE, UPDATE, Endpoint, Webhook
from virtplane.operators.kubevirt.certificates import API_SECRET, OPERATOR_SECRET
from virtplane.operators.kubevirt.product import KUBEVIRT
from virtplane.operators.kubevirt.strategy.parameters import Parameters

API_SERVICE = "virt-api"
OPERATOR_SERVICE = "kubevirt-operator-webhook"
_KUBEVIRT = ("v1alpha3", "v1")
_CU = (CREATE, UPDATE)


def _core(name: str, path: str, operations: tuple[str, ...], *plurals: str) -> Webhook:
    return Webhook(name, path, operations, "kubevirt.io", _KUBEVIRT, plurals)


def _instancetype(name: str, plural: str) -> Webhook:
    return Webhook(
        f"{name}-validator.instancetype.kubevirt.io",
        f"/{plural}-validate",
        _CU,
        "instancetype.kubevirt.io",
        ("v1beta1",),
        (plural,),
    )


def _eviction(name: str, condition: tuple[str, str], review_versions: tuple[str, ...]) -> Webhook:
    return Webhook(
        name,
        "/pod-eviction-validate",
        ("*",),
        "",
        ("v1",),
        ("pods/eviction",),
        condition,
        "NoneOnDryRun",
        review_versions,
    )


def _control_plane_eviction(namespace: str) -> Webhook:
    """Asked before the pod that is the whole control plane is evicted, by that pod itself.

    Where it does not answer it guards nothing, so its eviction goes ahead.
    """
    ours = f'object.metadata.name.startsWith("virt-operator-") && request.namespace == "{namespace}"'
    webhook = _eviction("virt-operator-eviction-interceptor.virtplane.io", ("only-operator", ours), ("v1",))
    return replace(webhook, failure_policy="Ignore")


VALIDATORS: tuple[Webhook, ...] = (
    _eviction(
        "virt-launcher-eviction-interceptor.kubevirt.io",
        ("only-vms", 'object.metadata.name.startsWith("virt-launcher")'),
        ("v1",),
    ),
    _eviction(
        "hotplug-pod-eviction-interceptor.kubevirt.io",
        ("only-hotplug-pods", 'object.metadata.name.startsWith("hp-volume-")'),
        ("v1", "v1beta1"),
    ),
    _core(
        "virtualmachineinstances-create-validator.kubevirt.io",
        "/virtualmachineinstances-validate-create",
        (CREATE,),
        "virtualmachineinstances",
    ),
    _core(
        "virtualmachineinstances-update-validator.kubevirt.io",
        "/virtualmachineinstances-validate-update",
        (UPDATE,),
        "virtualmachineinstances",
    ),
    _core("virtualmachine-validator.kubevirt.io", "/virtualmachines-validate", _CU, "virtualmachines"),
    _core(
        "virtualmachinereplicaset-validator.kubevirt.io",
        "/virtualmachinereplicaset-validate",
        _CU,
        "virtualmachineinstancereplicasets",
    ),
    Webhook(
        "virtualmachinepool-validator.kubevirt.io",
        "/virtualmachinepool-validate",
        _CU,
        "pool.kubevirt.io",
        ("v1beta1",),
        ("virtualmachinepools",),
    ),
    _core(
        "virtualmachinepreset-validator.kubevirt.io",
        "/vmipreset-validate",
        _CU,
        "virtualmachineinstancepresets",
    ),
    _core(
        "migration-create-validator.kubevirt.io",
        "/migration-validate-create",
        (CREATE,),
        "virtualmachineinstancemigrations",
    ),
    _core(
        "migration-update-validator.kubevirt.io",
        "/migration-validate-update",
        (UPDATE,),
        "virtualmachineinstancemigrations",
    ),
    Webhook(
        "virtualmachinesnapshot-validator.snapshot.kubevirt.io",
        "/virtualmachinesnapshots-validate",
        _CU,
        "snapshot.kubevirt.io",
        ("v1beta1",),
        ("virtualmachinesnapshots",),
    ),
    Webhook(
        "virtualmachinerestore-validator.snapshot.kubevirt.io",
        "/virtualmachinerestores-validate",
        _CU,
        "snapshot.kubevirt.io",
        ("v1beta1",),
        ("virtualmachinerestores",),
    ),
    Webhook(
        "virtualmachinebackup-validator.backup.kubevirt.io",
        "/virtualmachinebackups-validate",
        _CU,
        "backup.kubevirt.io",
        ("v1alpha1",),
        ("virtualmachinebackups",),
    ),
    Webhook(
        "virtualmachinebackuptracker-validator.backup.kubevirt.io",
        "/virtualmachinebackuptrackers-validate",
        _CU,
        "backup.kubevirt.io",
        ("v1alpha1",),
        ("virtualmachinebackuptrackers",),
    ),
    Webhook(
        "virtualmachineexport-validator.export.kubevirt.io",
        "/virtualmachineexports-validate",
        _CU,
        "export.kubevirt.io",
        ("v1",),
        ("virtualmachineexports",),
    ),
    _instancetype("virtualmachineinstancetype", "virtualmachineinstancetypes"),
    _instancetype("virtualmachineclusterinstancetype", "virtualmachineclusterinstancetypes"),
    _instancetype("virtualmachinepreference", "virtualmachinepreferences"),
    _instancetype("virtualmachineclusterpreference", "virtualmachineclusterpreferences"),
    _core(
        "kubevirt-crd-status-validator.kubevirt.io",
        "/status-validate",
        _CU,
        "virtualmachines/status",
        "virtualmachineinstancereplicasets/status",
        "virtualmachineinstancemigrations/status",
    ),
    Webhook(
        "migration-policy-validator.kubevirt.io",
        "/migration-policy-validate-create",
        _CU,
        "migrations.kubevirt.io",
        ("v1alpha1",),
        ("migrationpolicies",),
    ),
    Webhook(
        "vm-clone-validator.kubevirt.io",
        "/vm-clone-validate-create",
        _CU,
        "clone.kubevirt.io",
        ("v1beta1",),
        ("virtualmachineclones",),
    ),
    Webhook(
        "plugin-validator.plugin.kubevirt.io",
        "/plugin-validate",
        _CU,
        "plugin.kubevirt.io",
        ("v1alpha1",),
        ("plugins",),
    ),
)
"""Validating webhooks of virt-api."""

MUTATORS: tuple[Webhook, ...] = (
    _core("virtualmachines-mutator.kubevirt.io", "/virtualmachines-mutate", _CU, "virtualmachines"),
    _core(
        "virtualmachineinstances-mutator.kubevirt.io",
        "/virtualmachineinstances-mutate",
        _CU,
        "virtualmachineinstances",
    ),
    _core(
        "migrations-mutator.kubevirt.io",
        "/migration-mutate-create",
        (CREATE,),
        "virtualmachineinstancemigrations",
    ),
    Webhook(
        "virtualmachineclones-mutator.kubevirt.io",
        "/vm-clone-mutate-create",
        (CREATE,),
        "clone.kubevirt.io",
        ("v1beta1",),
        ("virtualmachineclones",),
    ),
)
"""Mutating webhooks of virt-api."""

POD_MUTATORS: tuple[Webhook, ...] = (
    Webhook(
        "virt-launcher-pod-mutator.kubevirt.io",
        "/virt-launcher-pod-mutate",
        (CREATE,),
        "",
        ("v1",),
        ("pods",),
        failure_policy="Ignore",
        object_labels=(("kubevirt.io", "virt-launcher"),),
        reinvocation="IfNeeded",
    ),
)
"""Those that change launchers."""

OPERATOR_VALIDATORS: tuple[Webhook, ...] = (
    _core("kubevirt-validator.kubevirt.io", "/kubevirt-validate-delete", (DELETE,), "kubevirts"),
    _core("kubevirt-update-validator.kubevirt.io", "/kubevirt-validate-update", (UPDATE,), "kubevirts"),
    _core("kubevirt-create-validator.kubevirt.io", "/kubevirt-validate-create", (CREATE,), "kubevirts"),
)
"""Validating webhooks of virt-operator."""


def operator_webhooks(parameters: Parameters) -> list[JsonObject]:
    """The webhook configuration for the KubeVirt object."""
    operator = _endpoint(OPERATOR_SERVICE, OPERATOR_SECRET, parameters)
    return [operator.validating("virt-operator-validator", OPERATOR_VALIDATORS)]


def api_webhooks(parameters: Parameters) -> list[JsonObject]:
    """The configurations of virt-api's webhooks, which are applied when virt-api is ready."""
    validators = VALIDATORS
    if parameters.layout == "compact":
        validators += (_control_plane_eviction(parameters.namespace),)
    api = _endpoint(API_SERVICE, API_SECRET, parameters)
    return [api.validating("virt-api-validator", validators), api.mutating("virt-api-mutator", MUTATORS)]


def pod_webhooks(parameters: Parameters) -> list[JsonObject]:
    """The configuration of virt-api's webhook that changes launchers."""
    api = _endpoint(API_SERVICE, API_SECRET, parameters)
    return [api.mutating("virt-launcher-pod-mutator", POD_MUTATORS)]


def api_services(parameters: Parameters) -> list[JsonObject]:
    """The APIServices of the aggregated group of subresources."""
    api = _endpoint(API_SERVICE, API_SECRET, parameters)
    return [
        api.aggregated("virt-api-aggregator", SUBRESOURCES_GROUP, version)
        for version in SUBRESOURCES_VERSIONS
    ]


def token_services(parameters: Parameters) -> list[JsonObject]:
    """The APIServices of the group in which tokens for displays are asked for."""
    api = _endpoint(API_SERVICE, API_SECRET, parameters)
    return [api.aggregated(ISSUER, TOKEN_GROUP, version) for version in TOKEN_VERSIONS]


def _endpoint(service: str, secret: str, parameters: Parameters) -> Endpoint:
    return Endpoint(KUBEVIRT, parameters.namespace, service, secret, parameters.ca_bundle)
