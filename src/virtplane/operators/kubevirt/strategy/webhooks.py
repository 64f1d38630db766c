"""Webhook configurations and aggregated API services."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.operators.kubevirt.certificates import API_SECRET, OPERATOR_SECRET
from virtplane.operators.kubevirt.strategy.parameters import Parameters

TIMEOUT_SECONDS = 10
API_SERVICE = "virt-api"
OPERATOR_SERVICE = "kubevirt-operator-webhook"
CERTIFICATE_ANNOTATION = "certificates.kubevirt.io/secret"

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook: what it is asked about, and under which path."""

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

OPERATOR_VALIDATORS: tuple[Webhook, ...] = (
    _core("kubevirt-validator.kubevirt.io", "/kubevirt-validate-delete", (DELETE,), "kubevirts"),
    _core("kubevirt-update-validator.kubevirt.io", "/kubevirt-validate-update", (UPDATE,), "kubevirts"),
    _core("kubevirt-create-validator.kubevirt.io", "/kubevirt-validate-create", (CREATE,), "kubevirts"),
)
"""Validating webhooks of virt-operator."""


def operator_webhooks(parameters: Parameters) -> list[JsonObject]:
    """The configuration that guards the KubeVirt object."""
    return [
        _configuration(
            "ValidatingWebhookConfiguration",
            "virt-operator-validator",
            OPERATOR_VALIDATORS,
            OPERATOR_SERVICE,
            OPERATOR_SECRET,
            parameters,
        )
    ]


def api_webhooks(parameters: Parameters) -> list[JsonObject]:
    """The configurations of virt-api's webhooks; applied once it answers."""
    validators = VALIDATORS
    if parameters.layout == "compact":
        validators += (_control_plane_eviction(parameters.namespace),)
    return [
        _configuration(
            "ValidatingWebhookConfiguration",
            "virt-api-validator",
            validators,
            API_SERVICE,
            API_SECRET,
            parameters,
        ),
        _configuration(
            "MutatingWebhookConfiguration",
            "virt-api-mutator",
            MUTATORS,
            API_SERVICE,
            API_SECRET,
            parameters,
        ),
    ]


def api_services(parameters: Parameters) -> list[JsonObject]:
    """Registration of the aggregated group of subresources."""
    return [
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{SUBRESOURCES_GROUP}",
                "labels": {"kubevirt.io": "virt-api-aggregator"},
                "annotations": {CERTIFICATE_ANNOTATION: API_SECRET},
            },
            "spec": {
                "group": SUBRESOURCES_GROUP,
                "version": version,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "caBundle": _encoded(parameters.ca_bundle),
                "service": {"name": API_SERVICE, "namespace": parameters.namespace, "port": 443},
            },
        }
        for version in SUBRESOURCES_VERSIONS
    ]


def _configuration(
    kind: str, name: str, webhooks: Sequence[Webhook], service: str, secret: str, parameters: Parameters
) -> JsonObject:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubevirt.io": name},
            "annotations": {CERTIFICATE_ANNOTATION: secret},
        },
        "webhooks": [_webhook(webhook, service, parameters) for webhook in webhooks],
    }


def _webhook(webhook: Webhook, service: str, parameters: Parameters) -> JsonObject:
    document: JsonObject = {
        "name": webhook.name,
        "admissionReviewVersions": list(webhook.review_versions),
        "clientConfig": {
            "service": {
                "name": service,
                "namespace": parameters.namespace,
                "path": webhook.path,
                "port": 443,
            },
            "caBundle": _encoded(parameters.ca_bundle),
        },
        "failurePolicy": webhook.failure_policy,
        "sideEffects": webhook.side_effects,
        "timeoutSeconds": TIMEOUT_SECONDS,
        "rules": [
            {
                "operations": list(webhook.operations),
                "apiGroups": [webhook.group],
                "apiVersions": list(webhook.versions),
                "resources": list(webhook.resources),
            }
        ],
    }
    if webhook.condition:
        document["matchConditions"] = [{"name": webhook.condition[0], "expression": webhook.condition[1]}]
    return document


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
