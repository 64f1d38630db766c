"""The objects that a VM or an instance depends on, as a tree of references."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore import errors
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from virtplane.api.kubevirt_v1.volumes import VOLUME_KINDS

_LABEL = "kubevirt.io/dependency-type"


def require_gate(is_on: bool) -> None:
    """Raises while the feature is off."""
    if not is_on:
        raise errors.bad_request("ObjectGraph feature gate not enabled: Unable to return object graph.")


def of_machine(
    vm: JsonObject, vmi: JsonObject | None, pods: Iterable[JsonObject], options: JsonObject
) -> JsonObject:
    """The tree below a VM."""
    children: list[JsonObject] = []
    if vmi is not None:
        instance = _node("kubevirt.io", "VirtualMachineInstance", meta.name(vmi), vm, "compute")
        children.append(_with(instance, [_pod(pod) for pod in pods]))
    for matcher, default in (("instancetype", "Instancetype"), ("preference", "Preference")):
        children += _matcher(vm, matcher, default)
    children += _volumes(get_object(vm, "spec", "template", "spec"), vm)
    root = _with(_node("kubevirt.io", "VirtualMachine", meta.name(vm), vm, "compute"), children)
    return _filtered(root, options)


def of_instance(vmi: JsonObject, pods: Iterable[JsonObject], options: JsonObject) -> JsonObject:
    """The tree below an instance."""
    children = [_pod(pod) for pod in pods] + _volumes(get_object(vmi, "spec"), vmi)
    root = _with(_node("kubevirt.io", "VirtualMachineInstance", meta.name(vmi), vmi, "compute"), children)
    return _filtered(root, options)


def _node(
    group: str, kind: str, name: str, owner: JsonObject, dependency: str, optional: bool = False
) -> JsonObject:
    reference = {"apiGroup": group, "kind": kind, "name": name, "namespace": meta.namespace(owner)}
    node: JsonObject = {"objectReference": reference, "labels": {_LABEL: dependency}}
    if optional:
        node["optional"] = True
    return node


def _with(node: JsonObject, children: list[JsonObject]) -> JsonObject:
    return {**node, "children": children} if children else node


def _pod(pod: JsonObject) -> JsonObject:
    return _node("", "Pod", meta.name(pod), pod, "compute")


def _matcher(vm: JsonObject, matcher: str, default: str) -> list[JsonObject]:
    spec = get_object(vm, "spec", matcher)
    name = get_str(spec, "name")
    if not name:
        return []
    kind = get_str(spec, "kind") or f"VirtualMachineCluster{default}"
    found = _node("instancetype.kubevirt.io", kind, name, vm, "config", optional=True)
    if "Cluster" in kind:
        found["objectReference"].pop("namespace")
    revision = get_str(vm, "status", f"{matcher}Ref", "controllerRevisionRef", "name")
    revision = revision or get_str(spec, "revisionName")
    if not revision:
        return [found]
    return [found, _node("apps", "ControllerRevision", revision, vm, "config")]


def _volumes(spec: JsonObject, owner: JsonObject) -> list[JsonObject]:
    result: list[JsonObject] = []
    for credential in get_list(spec, "accessCredentials"):
        for kind in ("sshPublicKey", "userPassword"):
            secret = get_str(credential, kind, "source", "secret", "secretName")
            if secret:
                result.append(_node("", "Secret", secret, owner, "config"))
    for volume in get_list(spec, "volumes"):
        result += [_node(*found[:3], owner, found[3]) for found in _sources(volume)]
    for network in get_list(spec, "networks"):
        definition = get_str(network, "multus", "networkName")
        if definition:
            group, kind = "k8s.cni.cncf.io", "NetworkAttachmentDefinition"
            result.append(_node(group, kind, definition.rpartition("/")[2], owner, "network", optional=True))
    return result


def _sources(volume: JsonObject) -> list[tuple[str, str, str, str]]:
    found = [
        (reference, get_str(volume, kind.name, *reference.path))
        for kind in VOLUME_KINDS
        for reference in kind.references
    ]
    return [(reference.group, reference.kind, name, reference.purpose) for reference, name in found if name]


def _filtered(root: JsonObject, options: JsonObject) -> JsonObject:
    selector = options.get("labelSelector")
    wanted = from_label_selector_object(selector) if isinstance(selector, dict) else None

    def prune(node: JsonObject) -> None:
        kept = []
        for child in get_list(node, "children"):
            if options.get("includeOptionalNodes") is False and child.get("optional"):
                continue
            if wanted is not None and not wanted.matches(child["labels"]):
                continue
            prune(child)
            kept.append(child)
        node.pop("children", None)
        if kept:
            node["children"] = kept

    result = deep_copy(root)
    prune(result)
    return result
