"""Validation of the KubeVirt object: pure functions for the operator's webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial

import orjson

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.structs import decode, readable
from kubecore.resources import ResourceType
from virtplane.api import feature_gates
from virtplane.api.ciphers import CIPHERS
from virtplane.api.config import ClusterConfig
from virtplane.api.durations import parse_duration
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration
from virtplane.api.kubevirt_v1.kubevirt import (
    CertConfig,
    KubeVirt,
    KubeVirtSelfSignConfiguration,
    KubeVirtSpec,
)
from virtplane.compute.apiserver.admission.request_schema import schema_causes, write_typed
from virtplane.operators.kit.status import DEPLOYED
from virtplane.serving.responses import FORBIDDEN, INVALID, NOT_SUPPORTED, Cause, Response

BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"
_KIND = "KubeVirt"
_PROBE_LABELS = {"kubevirt.io": "placement-probe"}
_ROTATION = "spec.certificateRotationStrategy.selfSigned"
_CONFIGURATION = "spec.configuration"


def review_create(new: JsonObject, existing: int) -> Response:
    """There is one KubeVirt object at most, whatever its namespace."""
    if existing:
        return Response.plain("Kubevirt is already created")
    return Response.allow(unsupported_warnings(INSTALLATION, get_object(new, "spec")))


def blocks_removal(kubevirt: JsonObject) -> bool:
    """Whether the object may not go while there are machines."""
    return (
        get_str(kubevirt, "spec", "uninstallStrategy") == BLOCK_UNINSTALL
        and get_str(kubevirt, "status", "phase") == DEPLOYED
    )


def review_delete(kubevirt: JsonObject, present: Sequence[str]) -> Response:
    """`present` names the kinds of workloads that still exist, the most telling first."""
    if not blocks_removal(kubevirt) or not present:
        return Response.allow()
    return Response.plain(
        f"Rejecting the uninstall request, since there are still {present[0]} present."
        " Either delete all KubeVirt related workloads or change the uninstall strategy"
        " before uninstalling KubeVirt."
    )


def unreadable(new: JsonObject) -> Response | None:
    """The refusal of an object that does not decode as a KubeVirt; None if it does."""
    found = schema_causes(_KIND, new)
    if found:
        return Response.refuse(found)
    try:
        typed = deep_copy(new)
        write_typed(_KIND, typed)
        for text in _lengths_of_time(decode(KubeVirt, typed).spec):
            parse_duration(text)
    except ValueError as error:
        return Response.plain(str(error))
    return None


def _lengths_of_time(spec: KubeVirtSpec) -> Iterator[str]:
    rotation, updates = _rotation_of(spec), spec.workload_update_strategy
    found = [rotation.ca_rotate_interval, rotation.cert_rotate_interval, rotation.ca_overlap_interval]
    for certificate in (rotation.ca, rotation.server):
        if certificate is not None:
            found += [certificate.duration, certificate.renew_before]
    found.append(updates.batch_eviction_interval if updates is not None else None)
    return (text for text in found if text is not None)


def _rotation_of(spec: KubeVirtSpec) -> KubeVirtSelfSignConfiguration:
    strategy = spec.certificate_rotate_strategy
    return (strategy.self_signed if strategy is not None else None) or KubeVirtSelfSignConfiguration()


def placement_probes(new: JsonObject, old: JsonObject) -> Iterator[tuple[ResourceType, JsonObject]]:
    """Workloads to create by dry run: the API server's errors about them are about the changed placements."""
    for part, resource in (("infra", resources.DEPLOYMENTS), ("workloads", resources.DAEMON_SETS)):
        wanted = get_object(new, "spec", part)
        placement = wanted.get("nodePlacement")
        if not isinstance(placement, dict) or wanted == get_object(old, "spec", part):
            continue
        fields = ("nodeSelector", "affinity", "tolerations")
        placed = {name: placement[name] for name in fields if placement.get(name) is not None}
        pod = {"containers": [{"name": "probe", "image": "probe:v1"}], **placed}
        spec = {
            "selector": {"matchLabels": _PROBE_LABELS},
            "template": {"metadata": {"labels": _PROBE_LABELS}, "spec": pod},
        }
        metadata = {"name": "placement-validation-webhook"}
        identity = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        yield resource, {**identity, "spec": spec}


def review_update(new: JsonObject, old: JsonObject, misplacements: Iterable[str] = ()) -> Response:
    """Every rule on what a readable update may set, and what it should be warned of.

    `misplacements` is what the API server found wrong with `placement_probes`. Raises UnfitDocument.
    """
    spec = decode(KubeVirt, new).spec
    # An old object that no longer fits must not block the update that corrects it.
    before = next((found.spec for found in readable(KubeVirt, [old])), KubeVirtSpec())
    configuration = spec.configuration or KubeVirtConfiguration()
    old_configuration = before.configuration or KubeVirtConfiguration()
    written, old_written = get_object(new, "spec"), get_object(old, "spec")
    causes = [
        *_patches(spec),
        *_rotation(_rotation_of(spec)),
        *_overhead(configuration),
        *_gated(configuration, old_configuration),
        *_tls(configuration, old_configuration),
        *(Cause(text, type=INVALID) for text in misplacements),
        *_seccomp(get_object(written, "configuration"), get_object(old_written, "configuration")),
        *_replicas(spec),
        *_gate_lists(configuration, old_configuration),
    ]
    if causes:
        return Response.refuse(causes, limit=0)
    warnings = list(_warnings(get_object(written, "configuration"), configuration, old_configuration))
    known = set(unsupported_warnings(INSTALLATION, old_written))
    warnings += [text for text in unsupported_warnings(INSTALLATION, written) if text not in known]
    return Response.allow(warnings)


def _patches(spec: KubeVirtSpec) -> Iterator[Cause]:
    for patch in spec.customize_components.patches if spec.customize_components is not None else ():
        try:
            orjson.loads(patch.patch)
        except orjson.JSONDecodeError:
            yield Cause(f'patch "{patch.patch}" is not valid JSON', type=NOT_SUPPORTED)


def _rotation(rotation: KubeVirtSelfSignConfiguration) -> Iterator[Cause]:
    authority, server = rotation.ca or CertConfig(), rotation.server or CertConfig()
    deprecated = (rotation.ca_rotate_interval, rotation.cert_rotate_interval, rotation.ca_overlap_interval)
    is_old_style = any(text is not None for text in deprecated)
    if is_old_style and (rotation.ca is not None or rotation.server is not None):
        yield Cause(
            "caRotateInterval, certRotateInterval and caOverlapInterval are deprecated"
            " and conflict with CertConfig defined rotation parameters",
            type=NOT_SUPPORTED,
        )
    authority_duration = _length(rotation.ca_rotate_interval, authority.duration, "168h")
    authority_renewal = _length(rotation.ca_overlap_interval, authority.renew_before, "0")
    server_duration = _length(rotation.cert_rotate_interval, server.duration, "24h")
    server_renewal = _length(server.renew_before, "0")
    if authority_duration < authority_renewal:
        yield Cause(
            f"CA RenewBefore cannot exceed Duration ({_ROTATION}.ca.duration < {_ROTATION}.ca.renewBefore)",
            type=INVALID,
        )
    if server_duration < server_renewal:
        yield Cause(
            "Cert RenewBefore cannot exceed Duration"
            f" ({_ROTATION}.server.duration < {_ROTATION}.server.renewBefore)",
            type=INVALID,
        )
    if server_duration > authority_duration:
        yield Cause(
            f"Certificate duration cannot exceed CA ({_ROTATION}.server.duration > {_ROTATION}.ca.duration)",
            type=INVALID,
        )


def _length(*choices: str | None) -> timedelta:
    """The first that is given."""
    return parse_duration(next(text for text in choices if text is not None))


def _overhead(configuration: KubeVirtConfiguration) -> Iterator[Cause]:
    text = configuration.additional_guest_memory_overhead_ratio
    if text is None:
        return
    try:
        ratio = float(text)
    except ValueError:
        yield Cause(
            f"ratio provided, {text}, cannot be parsed into float:"
            f' strconv.ParseFloat: parsing "{text}": invalid syntax',
            type=NOT_SUPPORTED,
        )
        return
    if ratio < 1.0:
        yield Cause(f"ratio provided, {text}, cannot be smaller than 1.0", type=NOT_SUPPORTED)


def _gated(configuration: KubeVirtConfiguration, old: KubeVirtConfiguration) -> Iterator[Cause]:
    developer, templates = configuration.developer_configuration, configuration.virt_template_deployment
    is_on = partial(
        feature_gates.is_enabled, enabled=developer.feature_gates, disabled=developer.disabled_feature_gates
    )
    if templates is not None and templates.enabled and not is_on("Template"):
        yield Cause(
            "VirtTemplateDeployment cannot be enabled without enabling the Template feature gate",
            f"{_CONFIGURATION}.virtTemplateDeployment.enabled",
        )
    strategy = configuration.role_aggregation_strategy
    if strategy not in (None, "AggregateToDefault") and not is_on("OptOutRoleAggregation"):
        yield Cause(
            "RoleAggregationStrategy cannot be set to Manual"
            " without enabling the OptOutRoleAggregation feature gate",
            f"{_CONFIGURATION}.roleAggregationStrategy",
        )
    changed = configuration.migrations.max_downtime_ms not in (None, old.migrations.max_downtime_ms)
    if changed and not (is_on("MigrationStallDetection") or is_on("MigrationDowntimeTuning")):
        yield Cause(
            "maxDowntimeMs cannot be modified without enabling"
            " the MigrationStallDetection or MigrationDowntimeTuning feature gate",
            f"{_CONFIGURATION}.migrationConfiguration.maxDowntimeMs",
        )


def _tls(configuration: KubeVirtConfiguration, old: KubeVirtConfiguration) -> Iterator[Cause]:
    tls, path = configuration.tls_configuration, f"{_CONFIGURATION}.tlsConfiguration"
    if tls is None or tls == old.tls_configuration:
        return
    if tls.ciphers and tls.min_tls_version in (None, "", "VersionTLS13"):
        yield Cause(
            f"You cannot specify ciphers when {path}.minTLSVersion is empty or VersionTLS13",
            f"{path}.ciphers",
            NOT_SUPPORTED,
        )
        return
    for index, cipher in enumerate(tls.ciphers):
        if cipher not in CIPHERS:
            yield Cause(f"{cipher} is not a valid cipher", f"{path}.ciphers#{index}", NOT_SUPPORTED)


def _replicas(spec: KubeVirtSpec) -> Iterator[Cause]:
    if spec.infra is not None and spec.infra.replicas == 0:
        yield Cause("infra replica count can't be 0")


def _seccomp(configuration: JsonObject, old: JsonObject) -> Iterator[Cause]:
    seccomp = get_object(configuration, "seccompConfiguration")
    profile = seccomp.get("virtualMachineInstanceProfile")
    if not isinstance(profile, dict) or seccomp == get_object(old, "seccompConfiguration"):
        return
    path = f"{_CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile.customProfile"
    custom = profile.get("customProfile")
    if not isinstance(custom, dict):
        yield Cause(f"{path} needs to be set", path)
        return
    local, runtime = f"{path}.localhostProfile", f"{path}.runtimeDefaultProfile"
    if custom.get("localhostProfile") is not None and custom.get("runtimeDefaultProfile"):
        yield Cause(f"{local} cannot be set when {runtime} is set", local)
        yield Cause(f"{runtime} cannot be set when {local} is set", runtime)


def _gate_lists(configuration: KubeVirtConfiguration, old: KubeVirtConfiguration) -> Iterator[Cause]:
    if not _gates_changed(configuration, old):
        return
    developer = configuration.developer_configuration
    for name in developer.feature_gates:
        if name in developer.disabled_feature_gates:
            yield Cause(
                f'feature gate "{name}" exists on both "FeatureGates" and "DisabledFeatureGates"',
                f"{_CONFIGURATION}.developerConfiguration.featureGates",
                FORBIDDEN,
            )


def _gates_changed(configuration: KubeVirtConfiguration, old: KubeVirtConfiguration) -> bool:
    ours, theirs = configuration.developer_configuration, old.developer_configuration
    return (ours.feature_gates, ours.disabled_feature_gates) != (
        theirs.feature_gates,
        theirs.disabled_feature_gates,
    )


def _warnings(
    written: JsonObject, configuration: KubeVirtConfiguration, old: KubeVirtConfiguration
) -> Iterator[str]:
    """`written` is the configuration as its author wrote it: empty lists are warned of, too."""
    if _gates_changed(configuration, old):
        for name in configuration.developer_configuration.feature_gates:
            warning = feature_gates.listing_warning(name)
            if warning:
                yield warning
    mediated = get_object(written, "mediatedDevicesConfiguration")
    path = f"{_CONFIGURATION}.mediatedDevicesConfiguration"
    if mediated.get("mediatedDevicesTypes") is not None:
        yield f"{path}.mediatedDevicesTypes is deprecated, use mediatedDeviceTypes"
    for index, node in enumerate(get_list(mediated, "nodeMediatedDeviceTypes")):
        if node.get("mediatedDevicesTypes") is not None:
            yield (
                f"{path}.nodeMediatedDeviceTypes[{index}].mediatedDevicesTypes is deprecated,"
                " use mediatedDeviceTypes"
            )
    if configuration.architecture_configuration.ppc64le is not None:
        yield f"{_CONFIGURATION}.architectureConfiguration.ppc64le is deprecated and no longer supported."
    contradictions = ClusterConfig(
        {"status": {"phase": "Deployed"}, "spec": {"configuration": written}}
    ).contradictions()
    for contradiction in contradictions:
        yield f"the configuration is ignored until this is mended: {contradiction}"
