"""Validation of the KubeVirt object: pure functions for the operator's webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import orjson

from kubecore import resources
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.resources import ResourceType
from virtplane.api import feature_gates
from virtplane.api.config import ClusterConfig
from virtplane.api.durations import parse_duration
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.compute.apiserver.admission.request_schema import schema_causes, write_typed
from virtplane.compute.apiserver.admission.response import (
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    Cause,
    Response,
)
from virtplane.operators.kit.status import DEPLOYED

BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"
_KIND = "KubeVirt"
_PROBE_LABELS = {"kubevirt.io": "placement-probe"}
_ROTATION = "spec.certificateRotationStrategy.selfSigned"
_CONFIGURATION = "spec.configuration"

_CIPHERS = frozenset(
    [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    ]
)
"""Names of cipher suites as Go's TLS library writes them, those of TLS 1.3 and insecure ones included."""


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
        write_typed(_KIND, deep_copy(new))
        for text in _lengths_of_time(get_object(new, "spec")):
            parse_duration(text)
    except ValueError as error:
        return Response.plain(str(error))
    return None


def _lengths_of_time(spec: JsonObject) -> Iterator[str]:
    rotation = get_object(spec, "certificateRotateStrategy", "selfSigned")
    parts: list[tuple[JsonObject, tuple[str, ...]]] = [
        (rotation, ("caRotateInterval", "certRotateInterval", "caOverlapInterval"))
    ]
    parts += [(get_object(rotation, part), ("duration", "renewBefore")) for part in ("ca", "server")]
    parts.append((get_object(spec, "workloadUpdateStrategy"), ("batchEvictionInterval",)))
    for part, names in parts:
        yield from (part[name] for name in names if part.get(name) is not None)


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

    `misplacements` is what the API server found wrong with `placement_probes`.
    """
    spec, old_spec = get_object(new, "spec"), get_object(old, "spec")
    configuration = get_object(spec, "configuration")
    old_configuration = get_object(old_spec, "configuration")
    gates = _Gates(configuration)
    causes = [
        *_patches(spec),
        *_rotation(get_object(spec, "certificateRotateStrategy", "selfSigned")),
        *_overhead(configuration),
        *_gated(configuration, old_configuration, gates),
        *_tls(configuration, old_configuration),
        *(Cause(text, type=INVALID) for text in misplacements),
        *_seccomp(configuration, old_configuration),
        *_replicas(spec),
        *_gate_lists(configuration, old_configuration),
    ]
    if causes:
        return Response.refuse(causes, limit=0)
    warnings = list(_warnings(configuration, old_configuration))
    known = set(unsupported_warnings(INSTALLATION, old_spec))
    warnings += [text for text in unsupported_warnings(INSTALLATION, spec) if text not in known]
    return Response.allow(warnings)


class _Gates:
    """Feature gates as the object itself would set them."""

    def __init__(self, configuration: JsonObject) -> None:
        developer = get_object(configuration, "developerConfiguration")
        self.enabled = get_list(developer, "featureGates")
        self.disabled = get_list(developer, "disabledFeatureGates")

    def on(self, name: str) -> bool:
        return feature_gates.is_enabled(name, self.enabled, self.disabled)


def _patches(spec: JsonObject) -> Iterator[Cause]:
    for patch in get_list(spec, "customizeComponents", "patches"):
        text = get_str(patch, "patch")
        try:
            orjson.loads(text)
        except orjson.JSONDecodeError:
            yield Cause(f'patch "{text}" is not valid JSON', type=NOT_SUPPORTED)


def _rotation(rotation: JsonObject) -> Iterator[Cause]:
    deprecated = ("caRotateInterval", "certRotateInterval", "caOverlapInterval")
    old_style = any(rotation.get(key) is not None for key in deprecated)
    authority, server = get_object(rotation, "ca"), get_object(rotation, "server")
    if old_style and any(rotation.get(key) is not None for key in ("ca", "server")):
        yield Cause(
            "caRotateInterval, certRotateInterval and caOverlapInterval are deprecated"
            " and conflict with CertConfig defined rotation parameters",
            type=NOT_SUPPORTED,
        )
    authority_duration = _length(rotation.get("caRotateInterval"), authority.get("duration"), "168h")
    authority_renewal = _length(rotation.get("caOverlapInterval"), authority.get("renewBefore"), "0")
    server_duration = _length(rotation.get("certRotateInterval"), server.get("duration"), "24h")
    server_renewal = _length(server.get("renewBefore"), "0")
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


def _overhead(configuration: JsonObject) -> Iterator[Cause]:
    text = configuration.get("additionalGuestMemoryOverheadRatio")
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


def _gated(configuration: JsonObject, old: JsonObject, gates: _Gates) -> Iterator[Cause]:
    if get_object(configuration, "virtTemplateDeployment").get("enabled") and not gates.on("Template"):
        yield Cause(
            "VirtTemplateDeployment cannot be enabled without enabling the Template feature gate",
            f"{_CONFIGURATION}.virtTemplateDeployment.enabled",
        )
    strategy = get_str(configuration, "roleAggregationStrategy", default="AggregateToDefault")
    if strategy != "AggregateToDefault" and not gates.on("OptOutRoleAggregation"):
        yield Cause(
            "RoleAggregationStrategy cannot be set to Manual"
            " without enabling the OptOutRoleAggregation feature gate",
            f"{_CONFIGURATION}.roleAggregationStrategy",
        )
    downtime = get_object(configuration, "migrations").get("maxDowntimeMs")
    changed = downtime is not None and downtime != get_object(old, "migrations").get("maxDowntimeMs")
    if changed and not (gates.on("MigrationStallDetection") or gates.on("MigrationDowntimeTuning")):
        yield Cause(
            "maxDowntimeMs cannot be modified without enabling"
            " the MigrationStallDetection or MigrationDowntimeTuning feature gate",
            f"{_CONFIGURATION}.migrationConfiguration.maxDowntimeMs",
        )


def _tls(configuration: JsonObject, old: JsonObject) -> Iterator[Cause]:
    tls = get_object(configuration, "tlsConfiguration")
    if not tls or tls == get_object(old, "tlsConfiguration"):
        return
    path = f"{_CONFIGURATION}.tlsConfiguration"
    ciphers = get_list(tls, "ciphers")
    if ciphers and get_str(tls, "minTLSVersion") in ("", "VersionTLS13"):
        yield Cause(
            f"You cannot specify ciphers when {path}.minTLSVersion is empty or VersionTLS13",
            f"{path}.ciphers",
            NOT_SUPPORTED,
        )
        return
    for index, cipher in enumerate(ciphers):
        if cipher not in _CIPHERS:
            yield Cause(f"{cipher} is not a valid cipher", f"{path}.ciphers#{index}", NOT_SUPPORTED)


def _replicas(spec: JsonObject) -> Iterator[Cause]:
    if get_object(spec, "infra").get("replicas") == 0:
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


def _gate_lists(configuration: JsonObject, old: JsonObject) -> Iterator[Cause]:
    if not _gates_changed(configuration, old):
        return
    gates = _Gates(configuration)
    for name in gates.enabled:
        if name in gates.disabled:
            yield Cause(
                f'feature gate "{name}" exists on both "FeatureGates" and "DisabledFeatureGates"',
                f"{_CONFIGURATION}.developerConfiguration.featureGates",
                FORBIDDEN,
            )


def _gates_changed(configuration: JsonObject, old: JsonObject) -> bool:
    def lists(document: JsonObject) -> tuple[Any, Any]:
        developer = get_object(document, "developerConfiguration")
        return get_list(developer, "featureGates"), get_list(developer, "disabledFeatureGates")

    return lists(configuration) != lists(old)


def _warnings(configuration: JsonObject, old: JsonObject) -> Iterator[str]:
    if _gates_changed(configuration, old):
        for name in _Gates(configuration).enabled:
            warning = feature_gates.listing_warning(name)
            if warning:
                yield warning
    mediated = get_object(configuration, "mediatedDevicesConfiguration")
    path = f"{_CONFIGURATION}.mediatedDevicesConfiguration"
    if mediated.get("mediatedDevicesTypes") is not None:
        yield f"{path}.mediatedDevicesTypes is deprecated, use mediatedDeviceTypes"
    for index, node in enumerate(get_list(mediated, "nodeMediatedDeviceTypes")):
        if node.get("mediatedDevicesTypes") is not None:
            yield (
                f"{path}.nodeMediatedDeviceTypes[{index}].mediatedDevicesTypes is deprecated,"
                " use mediatedDeviceTypes"
            )
    if get_object(configuration, "architectureConfiguration").get("ppc64le") is not None:
        yield f"{_CONFIGURATION}.architectureConfiguration.ppc64le is deprecated and no longer supported."
    contradictions = ClusterConfig(
        {"status": {"phase": "Deployed"}, "spec": {"configuration": configuration}}
    ).contradictions()
    for contradiction in contradictions:
        yield f"the configuration is ignored until this is mended: {contradiction}"
