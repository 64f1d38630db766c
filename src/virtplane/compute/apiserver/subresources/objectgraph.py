"""The objects that a VM or an instance depends on, as a tree of references."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore import errors
from kubecore.json import JsonObject, deep_copy, get_list
from kubecore.objects import meta
from kubecore.objects.selectors import SelectorError, from_label_selector_object
from virtplane.api.kubevirt_v1.vm import InstancetypeMatcher, PreferenceMatcher, VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import InstancetypeStatusRef
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import references

_LABEL = "kubevirt.io/dependency-type"


def require_gate(is_on: bool) -> None:
    """Raises while the feature is off."""
    if not is_on:
        raise errors.bad_request("ObjectGraph feature gate not enabled: Unable to return object graph.")


def of_machine(
    vm: VirtualMachine,
    vmi: VirtualMachineInstance | None,
    pods: Iterable[JsonObject],
    options: JsonObject,
) -> JsonObject:
    """The tree below a VM."""
    namespace, children = vm.metadata.namespace, list[JsonObject]()
    if vmi is not None:
        name = vmi.metadata.name
        instance = _node("kubevirt.io", "VirtualMachineInstance", name, namespace, "compute")
        children.append(_with(instance, [_pod(pod) for pod in pods]))
    spec, status = vm.spec, vm.observed
    children += _matcher(spec.instancetype, status.instancetype_ref, "Instancetype", namespace)
    children += _matcher(spec.preference, status.preference_ref, "Preference", namespace)
    children += _volumes(spec.instance, namespace)
    root = _node("kubevirt.io", "VirtualMachine", vm.metadata.name, namespace, "compute")
    return _filtered(_with(root, children), options)


def of_instance(vmi: VirtualMachineInstance, pods: Iterable[JsonObject], options: JsonObject) -> JsonObject:
    """The tree below an instance."""
    name, namespace = vmi.metadata.name, vmi.metadata.namespace
    children = [_pod(pod) for pod in pods] + _volumes(vmi.spec, namespace)
    root = _node("kubevirt.io", "VirtualMachineInstance", name, namespace, "compute")
    return _filtered(_with(root, children), options)


def _node(
    group: str, kind: str, name: str, namespace: str, dependency: str, optional: bool = False
) -> JsonObject:
    reference = {"apiGroup": group, "kind": kind, "name": name, "namespace": namespace}
    node: JsonObject = {"objectReference": reference, "labels": {_LABEL: dependency}}
    if optional:
        node["optional"] = True
    return node


def _with(node: JsonObject, children: list[JsonObject]) -> JsonObject:
    return {**node, "children": children} if children else node


def _pod(pod: JsonObject) -> JsonObject:
    return _node("", "Pod", meta.name(pod), meta.namespace(pod), "compute")


def _matcher(
    matcher: InstancetypeMatcher | PreferenceMatcher | None,
    used: InstancetypeStatusRef | None,
    default: str,
    namespace: str,
) -> list[JsonObject]:
    if matcher is None or not matcher.name:
        return []
    kind = matcher.kind or f"VirtualMachineCluster{default}"
    found = _node("instancetype.kubevirt.io", kind, matcher.name, namespace, "config", optional=True)
    if "Cluster" in kind:
        found["objectReference"].pop("namespace")
    pinned = used.controller_revision_ref if used is not None else None
    revision = (pinned.name if pinned is not None else None) or matcher.revision_name
    if not revision:
        return [found]
    return [found, _node("apps", "ControllerRevision", revision, namespace, "config")]


def _volumes(spec: VirtualMachineInstanceSpec, namespace: str) -> list[JsonObject]:
    result: list[JsonObject] = []
    for credential in spec.access_credentials:
        for method in (credential.ssh_public_key, credential.user_password):
            secret = method.source.secret if method is not None else None
            if secret is not None and secret.secret_name:
                result.append(_node("", "Secret", secret.secret_name, namespace, "config"))
    for volume in spec.volumes:
        for reference, name in references(volume):
            result.append(_node(reference.group, reference.kind, name, namespace, reference.purpose))
    for network in spec.networks:
        if network.multus is not None and network.multus.network_name:
            group, kind = "k8s.cni.cncf.io", "NetworkAttachmentDefinition"
            name = network.multus.network_name.rpartition("/")[2]
            result.append(_node(group, kind, name, namespace, "network", optional=True))
    return result


def _filtered(root: JsonObject, options: JsonObject) -> JsonObject:
    selector = options.get("labelSelector")
    try:
        wanted = from_label_selector_object(selector) if isinstance(selector, dict) else None
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error

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
