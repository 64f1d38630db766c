"""Where a launcher may run: node selector, affinity, tolerations.

Labels of nodes tell their capabilities (CPU models and features, machine types, encryption); the pod selects
them.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import labels as wellknown
from virtplane.api.kubevirt_v1.features import FeatureHyperv, FeatureState, is_on
from virtplane.compute.launcherpod.inputs import RenderInputs

OBSOLETE_HOST_MODEL = wellknown.OBSOLETE_HOST_MODEL


def node_selector(inputs: RenderInputs) -> dict[str, str]:
    """The labels that a node must carry."""
    selector = dict(inputs.settings.configuration.developer_configuration.node_selectors)
    selector.update(inputs.spec.node_selector)
    selector[wellknown.SCHEDULABLE] = "true"
    cross = inputs.settings.gate("CrossArchitectureVirtualization")
    if cross:
        selector[f"{wellknown.VM_ARCHITECTURE_PREFIX}{inputs.architecture}"] = "true"
    else:
        selector["kubernetes.io/arch"] = inputs.architecture
    for label in _required_labels(inputs):
        selector[label] = "true"
    return selector


def _required_labels(inputs: RenderInputs) -> list[str]:
    cpu = inputs.domain.cpu
    labels: list[str] = []
    if inputs.is_dedicated:
        labels.append(wellknown.CPU_MANAGER)
    if cpu.realtime is not None:
        labels.append(wellknown.REALTIME)
    if cpu.model and cpu.model not in ("host-model", "host-passthrough"):
        labels.append(f"{wellknown.CPU_MODEL_PREFIX}{cpu.model}")
    for feature in cpu.features:
        if feature.policy in (None, "", "require"):
            labels.append(f"{wellknown.CPU_FEATURE_PREFIX}{feature.name}")
    if inputs.domain.machine.type:
        labels.append(f"{wellknown.MACHINE_TYPE_PREFIX}{inputs.domain.machine.type}")
    labels += _hyperv_labels(inputs) + _encryption_labels(inputs)
    hints = inputs.vmi.status.topology_hints
    if hints is not None and hints.tsc_frequency:
        labels.append(f"{wellknown.TSC_SCHEDULING_PREFIX}{hints.tsc_frequency}")
    return labels


def _hyperv_labels(inputs: RenderInputs) -> list[str]:
    features = inputs.domain.features.hyperv
    if features is None or not inputs.settings.gate("HypervStrictCheck"):
        return []
    labels = [
        wellknown.HYPERV_PREFIX + name
        for name, feature in _hyperv_checked(features).items()
        if is_on(feature)
    ]
    if is_on(features.evmcs):
        labels.append("cpu-vendor.node.kubevirt.io/Intel")
    return labels


def _hyperv_checked(features: FeatureHyperv) -> dict[str, FeatureState | None]:
    """The Hyper-V enlightenments that node labels announce, by the names of the labels."""
    return {
        "frequencies": features.frequencies,
        "ipi": features.ipi,
        "reenlightenment": features.reenlightenment,
        "reset": features.reset,
        "runtime": features.runtime,
        "synic": features.synic,
        "synictimer": features.synictimer,
        "tlbflush": features.tlbflush,
        "vpindex": features.vpindex,
    }


def _encryption_labels(inputs: RenderInputs) -> list[str]:
    security = inputs.domain.launch_security
    if security is None:
        return []
    labels: list[str] = []
    if security.sev is not None:
        labels.append("kubevirt.io/sev")
    if security.snp is not None:
        labels.append("kubevirt.io/sev-snp")
    if security.tdx is not None:
        labels.append("kubevirt.io/tdx")
    policy = security.sev.policy if security.sev is not None else None
    if policy is not None and policy.encrypted_state:
        labels.append("kubevirt.io/sev-es")
    if inputs.architecture == "s390x":
        labels.append("kubevirt.io/s390-pv")
    return labels


def affinity(inputs: RenderInputs) -> JsonObject:
    """The user's affinity, with each of its terms restricted to nodes that can run the guest's CPU."""
    result = encode(inputs.spec.affinity) if inputs.spec.affinity is not None else {}
    expressions = _node_expressions(inputs)
    if not expressions:
        return result
    node = result.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        term["matchExpressions"] = [*term.get("matchExpressions", []), *expressions]
    return result


def _node_expressions(inputs: RenderInputs) -> list[JsonObject]:
    cpu = inputs.domain.cpu
    expressions = [
        {"key": f"{wellknown.CPU_FEATURE_PREFIX}{feature.name}", "operator": "DoesNotExist"}
        for feature in cpu.features
        if feature.policy == "forbid"
    ]
    if cpu.model in (None, "", "host-model") and inputs.architecture != "arm64":
        expressions.append({"key": OBSOLETE_HOST_MODEL, "operator": "DoesNotExist"})
    return expressions
