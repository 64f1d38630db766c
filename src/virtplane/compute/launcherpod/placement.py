"""Where a launcher may run: node selector, affinity, tolerations.

Nodes say by labels what they offer (CPU models and features, machine types, encryption); the pod selects
them.
"""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_bool, get_list, get_object, get_str
from virtplane.compute.launcherpod.inputs import RenderInputs

OBSOLETE_HOST_MODEL = "node-labeller.kubevirt.io/obsolete-host-model"
_HYPERV_LABEL = "hyperv.node.kubevirt.io/"
_HYPERV_CHECKED = (
    "frequencies",
    "ipi",
    "reenlightenment",
    "reset",
    "runtime",
    "synic",
    "synictimer",
    "tlbflush",
    "vpindex",
)
_ENCRYPTION_LABELS = {"sev": "kubevirt.io/sev", "snp": "kubevirt.io/sev-snp", "tdx": "kubevirt.io/tdx"}


def node_selector(inputs: RenderInputs) -> dict[str, str]:
    """The labels that a node must carry."""
    selector: dict[str, str] = dict(get_object(inputs.settings.developer, "nodeSelectors"))
    selector.update(get_object(inputs.spec, "nodeSelector"))
    selector["kubevirt.io/schedulable"] = "true"
    cross = inputs.settings.gate("CrossArchitectureVirtualization")
    if cross:
        selector[f"kubevirt.io/vm-arch-{inputs.architecture}"] = "true"
    else:
        selector["kubernetes.io/arch"] = inputs.architecture
    for label in _required_labels(inputs):
        selector[label] = "true"
    return selector


def _required_labels(inputs: RenderInputs) -> list[str]:
    cpu = get_object(inputs.domain, "cpu")
    labels: list[str] = []
    if inputs.is_dedicated:
        labels.append("kubevirt.io/cpumanager")
    if isinstance(cpu.get("realtime"), dict):
        labels.append("kubevirt.io/realtime")
    model = get_str(cpu, "model")
    if model and model not in ("host-model", "host-passthrough"):
        labels.append(f"cpu-model.node.kubevirt.io/{model}")
    for feature in get_list(cpu, "features"):
        if feature.get("policy") in (None, "", "require"):
            labels.append(f"cpu-feature.node.kubevirt.io/{feature.get('name')}")
    machine = get_str(inputs.domain, "machine", "type")
    if machine:
        labels.append(f"machine-type.node.kubevirt.io/{machine}")
    labels += _hyperv_labels(inputs) + _encryption_labels(inputs)
    frequency = get_object(inputs.vmi, "status", "topologyHints").get("tscFrequency")
    if frequency:
        labels.append(f"scheduling.node.kubevirt.io/tsc-frequency-{frequency}")
    return labels


def _hyperv_labels(inputs: RenderInputs) -> list[str]:
    features = get_object(inputs.domain, "features", "hyperv")
    if not features or not inputs.settings.gate("HypervStrictCheck"):
        return []
    on = [name for name in _HYPERV_CHECKED if _is_on(features.get(name))]
    labels = [_HYPERV_LABEL + name for name in on]
    if _is_on(features.get("evmcs")):
        labels.append("cpu-vendor.node.kubevirt.io/Intel")
    return labels


def _is_on(feature: object) -> bool:
    return isinstance(feature, dict) and feature.get("enabled") is not False


def _encryption_labels(inputs: RenderInputs) -> list[str]:
    security = get_object(inputs.domain, "launchSecurity")
    labels = [label for kind, label in _ENCRYPTION_LABELS.items() if kind in security]
    if get_bool(security, "sev", "policy", "encryptedState"):
        labels.append("kubevirt.io/sev-es")
    if inputs.architecture == "s390x" and isinstance(inputs.domain.get("launchSecurity"), dict):
        labels.append("kubevirt.io/s390-pv")
    return labels


def affinity(inputs: RenderInputs) -> JsonObject:
    """The user's affinity, every alternative of it narrowed to nodes that can run the guest's CPU."""
    result = deep_copy(get_object(inputs.spec, "affinity"))
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
    cpu = get_object(inputs.domain, "cpu")
    expressions = [
        {"key": f"cpu-feature.node.kubevirt.io/{feature.get('name')}", "operator": "DoesNotExist"}
        for feature in get_list(cpu, "features")
        if feature.get("policy") == "forbid"
    ]
    if get_str(cpu, "model") in ("", "host-model") and inputs.architecture != "arm64":
        expressions.append({"key": OBSOLETE_HOST_MODEL, "operator": "DoesNotExist"})
    return expressions
