"""The launcher pod of an instance."""

from __future__ import annotations

from msgspec.structs import replace

from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import encode
from virtplane.api import labels
from virtplane.api.core_v1 import PodDNSConfig
from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.addresses import without_leading_zeros
from virtplane.compute.launcherpod import containers, metadata, placement, reservations, sidecars, volumes
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.launcherpod.volumes import VolumeSet

UNPAUSED_GATE = labels.CONDITION_UNPAUSED
_POD_SECURITY = "pod-security.kubernetes.io/enforce"
_GRACE_EXTRA_SECONDS = 30


def render_launcher_pod(inputs: RenderInputs) -> JsonObject:
    """The pod that will run the instance, without server-side defaults.

    Its name is that of the instance's first launcher.

    Raises ValueError where an amount or an annotation of the instance cannot be read, and for disks that are
    the launcher's own image.
    """
    pod_volumes = volumes.pod_volumes(inputs)
    init, running = containers.image_containers(inputs, pod_volumes)
    hooks = sidecars.sidecar_containers(inputs, pod_volumes)
    compute = containers.compute(inputs, pod_volumes)
    if hooks:
        _set_hook_count(compute, len(hooks))
    log = containers.guest_console_log(inputs)
    shares = containers.virtiofs_containers(inputs, pod_volumes)
    spec = _pod_spec(inputs, pod_volumes)
    spec["initContainers"] = [*([log] if log else []), *init]
    spec["containers"] = [compute, *running, *shares, *hooks]
    if not spec["initContainers"]:
        del spec["initContainers"]
    prefix = metadata.launcher_prefix(inputs.name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata.unique_name(prefix, inputs.uid),
            "generateName": prefix,
            "namespace": inputs.namespace_name,
            "labels": metadata.pod_labels(inputs),
            "annotations": metadata.pod_annotations(inputs),
            "ownerReferences": [owner_reference(inputs.name, inputs.uid)],
        },
        "spec": spec,
    }


def owner_reference(instance: str, uid: str) -> JsonObject:
    """The owner reference from a pod to its instance."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "name": instance,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _set_hook_count(compute: JsonObject, count: int) -> None:
    arguments: list[str] = compute["args"]
    arguments[arguments.index("--hook-sidecars") + 1] = str(count)


def _pod_spec(inputs: RenderInputs, pod_volumes: VolumeSet) -> JsonObject:
    grace = inputs.spec.termination_grace_period_seconds
    spec: JsonObject = {
        "restartPolicy": "Never",
        "hostname": inputs.hostname,
        "terminationGracePeriodSeconds": (30 if grace is None else grace) + _GRACE_EXTRA_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": _mounts_token(inputs, pod_volumes),
        "securityContext": _pod_security(inputs),
        "nodeSelector": placement.node_selector(inputs),
        "readinessGates": [{"conditionType": UNPAUSED_GATE}],
        "tolerations": [encode(toleration) for toleration in inputs.spec.tolerations],
        "volumes": pod_volumes.volumes,
        "dnsPolicy": inputs.spec.dns_policy or "ClusterFirst",
    }
    affinity = reservations.keep_apart(inputs, placement.affinity(inputs))
    if affinity:
        spec["affinity"] = affinity
    spec.update({key: value for key, value in _copied(inputs).items() if value})
    account = inputs.spec.service_account_name or pod_volumes.service_account
    if account:
        spec["serviceAccountName"] = account
    runtime_class = inputs.settings.configuration.default_runtime_class
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    secrets = [*inputs.settings.image_pull_secrets, *({"name": name} for name in pod_volumes.pull_secrets)]
    if secrets:
        spec["imagePullSecrets"] = secrets
    return spec


def _resolver(config: PodDNSConfig) -> JsonObject:
    """Pods may not name servers with leading zeros, as instances may."""
    servers = tuple(without_leading_zeros(server) for server in config.nameservers)
    return encode(replace(config, nameservers=servers))


def _copied(inputs: RenderInputs) -> JsonObject:
    """The fields that the pod copies from the instance."""
    spec = inputs.spec
    return {
        "dnsConfig": _resolver(spec.dns_config) if spec.dns_config is not None else None,
        "priorityClassName": spec.priority_class_name,
        "schedulerName": spec.scheduler_name,
        "subdomain": spec.subdomain,
        "resourceClaims": [encode(claim) for claim in spec.resource_claims],
        "topologySpreadConstraints": [encode(each) for each in spec.topology_spread_constraints],
    }


def _mounts_token(inputs: RenderInputs, pod_volumes: VolumeSet) -> bool:
    return bool(pod_volumes.service_account) or inputs.annotations.get(labels.ISTIO_INJECT) == "true"


def _pod_security(inputs: RenderInputs) -> JsonObject:
    context: JsonObject = {"fsGroup": QEMU_USER, "runAsUser": 0}
    if not inputs.is_root:
        context.update({"runAsUser": QEMU_USER, "runAsGroup": QEMU_USER, "runAsNonRoot": True})
    linux_type = inputs.settings.configuration.selinux_launcher_type
    if linux_type:
        context["seLinuxOptions"] = {"type": linux_type}
    profile = _seccomp_profile(inputs)
    if profile:
        context["seccompProfile"] = profile
    return context


def _seccomp_profile(inputs: RenderInputs) -> JsonObject:
    """The configured seccomp profile, else RuntimeDefault where Pod Security is `restricted`, else none."""
    seccomp = inputs.settings.configuration.seccomp_configuration
    custom = seccomp.virtual_machine_instance_profile.custom_profile
    if custom.localhost_profile:
        return {"type": "Localhost", "localhostProfile": custom.localhost_profile}
    standard = get_object(inputs.namespace, "metadata", "labels").get(_POD_SECURITY)
    if custom.runtime_default_profile or standard == "restricted":
        return {"type": "RuntimeDefault"}
    return {}
