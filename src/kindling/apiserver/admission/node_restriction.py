"""NodeRestriction: a node writes its own node, lease and drivers, and the pods that are bound to it.

What the node authorizer cannot see, because it knows a request's place but not its object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kindling.apiserver.auth import pod_references
from kindling.apiserver.auth.node_authorizer import node_of
from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kindling.apiserver.registry.context import ObjectReader
from kubecore.errors import not_found
from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.fields import go_quote
from kubecore.resources import NODES, PODS

from .base import object_name, refuse

_MIRROR = "kubernetes.io/config.mirror"
_LEASE_NAMESPACE = "kube-node-lease"
_RESTRICTED = "node-restriction.kubernetes.io"
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.kubernetes.io/region",
        "failure-domain.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_LABEL_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")


class NodeRestriction(Admission):
    """See the module."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._checks: dict[tuple[str, str, str], Callable[[str, AdmissionAttributes], str]] = {
            ("", "pods", ""): self._pod,
            ("", "pods", "status"): _pod_status,
            ("", "pods", "eviction"): self._eviction,
            ("", "nodes", ""): _node,
            ("", "nodes", "status"): _node,
            ("", "persistentvolumeclaims", "status"): _claim_status,
            ("", "serviceaccounts", "token"): self._token,
            ("coordination.k8s.io", "leases", ""): _lease,
            ("storage.k8s.io", "csinodes", ""): _csi_node,
        }

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Refuse writes to objects that are not the node's own. Users that are not nodes pass."""
        node = node_of(attributes.ctx.user)
        if node is None or attributes.operation == "CONNECT":
            return
        if not node:
            user = attributes.ctx.user.name
            raise refuse(attributes, f"could not determine node from user {go_quote(user)}")
        resource = attributes.definition.resource
        check = self._checks.get((resource.group, resource.plural, attributes.ctx.subresource))
        problem = check(node, attributes) if check is not None else ""
        if problem:
            raise refuse(attributes, problem)

    def _pod(self, node: str, attributes: AdmissionAttributes) -> str:
        quoted = go_quote(node)
        if attributes.operation == "DELETE":
            if get_str(attributes.old_object or {}, "spec", "nodeName") != node:
                return f"node {quoted} can only delete pods with spec.nodeName set to itself"
            return ""
        if attributes.operation != "CREATE" or attributes.object is None:
            operation = go_quote(attributes.operation)
            return f"unexpected operation {operation}, node {quoted} can only create and delete mirror pods"
        pod = attributes.object
        if _MIRROR not in meta.annotations(pod):
            return (
                f"pod does not have {go_quote(_MIRROR)} annotation, node {quoted} can only create mirror pods"
            )
        if get_str(pod, "spec", "nodeName") != node:
            return f"node {quoted} can only create pods with spec.nodeName set to itself"
        return self._mirror_owner(node, pod) or _mirror_references(quoted, pod)

    def _mirror_owner(self, node: str, pod: JsonObject) -> str:
        """A mirror pod belongs to its node and to nothing else."""
        quoted = go_quote(node)
        owners = get_list(pod, "metadata", "ownerReferences")
        if len(owners) > 1:
            return f"node {quoted} can only create pods with a single owner reference set to itself"
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f"node {quoted} can only create pods with an owner reference set to itself"
        if not owner.get("controller"):
            return f"node {quoted} can only create pods with a controller owner reference set to itself"
        if owner.get("blockOwnerDeletion"):
            return f"node {quoted} must not set blockOwnerDeletion on an owner reference"
        found = self._objects.get(NODES, None, node)
        if found is None:
            raise not_found(NODES, node)
        if owner.get("uid") != meta.uid(found):
            return f"node {node} UID mismatch: expected {owner.get('uid')} got {meta.uid(found)}"
        return ""

    def _eviction(self, node: str, attributes: AdmissionAttributes) -> str:
        if get_str(self._bound_pod(attributes, object_name(attributes)), "spec", "nodeName") != node:
            return f"node {node} can only evict pods with spec.nodeName set to itself"
        return ""

    def _token(self, node: str, attributes: AdmissionAttributes) -> str:
        """A token is for a pod of the node, and ends with it."""
        reference = get_object(attributes.object or {}, "spec", "boundObjectRef")
        name, uid = get_str(reference, "name"), get_str(reference, "uid")
        if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not name:
            return "node requested token not bound to a pod"
        if not uid:
            return "node requested token with a pod binding without a uid"
        pod = self._bound_pod(attributes, name)
        if meta.uid(pod) != uid:
            return (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
        if get_str(pod, "spec", "nodeName") != node:
            return "node requested token bound to a pod scheduled on a different node"
        return ""

    def _bound_pod(self, attributes: AdmissionAttributes, name: str) -> JsonObject:
        pod = self._objects.get(PODS, attributes.ctx.namespace, name)
        if pod is None:
            raise not_found(PODS, name)
        return pod


def _mirror_references(quoted: str, pod: JsonObject) -> str:
    """A node must not create a mirror pod in order to read objects that the pod refers to."""
    if get_str(pod, "spec", "serviceAccountName"):
        return f"node {quoted} can not create pods that reference a service account"
    kinds = {
        "secrets": pod_references.secrets,
        "configmaps": pod_references.config_maps,
        "persistentvolumeclaims": pod_references.claims,
    }
    for plural, references in kinds.items():
        if any(references(pod)):
            return f"node {quoted} can not create pods that reference {plural}"
    return ""


def _pod_status(node: str, attributes: AdmissionAttributes) -> str:
    old, new = attributes.old_object or {}, attributes.object or {}
    quoted = go_quote(node)
    if get_str(old, "spec", "nodeName") != node:
        return f"node {quoted} can only update pod status for pods with spec.nodeName set to itself"
    if meta.labels(old) != meta.labels(new):
        return f"node {quoted} cannot update labels through pod status"
    return ""


def _node(node: str, attributes: AdmissionAttributes) -> str:
    name, quoted = object_name(attributes), go_quote(node)
    if name != node:
        return f"node {quoted} is not allowed to modify node {go_quote(name)}"
    if attributes.object is None or attributes.operation not in ("CREATE", "UPDATE"):
        return ""
    new, old = attributes.object, attributes.old_object or {}
    if attributes.operation == "CREATE":
        refused = forbidden_labels(meta.labels(new), {})
        if refused:
            return f"node {quoted} is not allowed to set the following labels: {', '.join(refused)}"
        return ""
    if get_list(new, "spec", "taints") != get_list(old, "spec", "taints"):
        return f"node {quoted} is not allowed to modify taints"
    refused = forbidden_labels(meta.labels(new), meta.labels(old))
    return f"is not allowed to modify labels: {', '.join(refused)}" if refused else ""


def forbidden_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Labels that differ and that no node may change on itself, sorted (pure)."""
    changed = {key for key in {*new, *old} if new.get(key) != old.get(key) or (key in new) != (key in old)}
    return sorted(key for key in changed if not _may_label(key))


def _may_label(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    if not slash or not _is_of(domain, "kubernetes.io", "k8s.io"):
        return True
    if _is_of(domain, _RESTRICTED):
        return False
    return key in _OWN_LABELS or _is_of(domain, *_OWN_LABEL_DOMAINS)


def _is_of(domain: str, *parents: str) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


def _claim_status(node: str, attributes: AdmissionAttributes) -> str:
    """Of a claim's status a node reports how large the volume is, and how growing it went."""
    if _without_reported(attributes.old_object) == _without_reported(attributes.object):
        return ""
    quoted = go_quote(node)
    return f"node {quoted} is not allowed to update fields other than status.capacity and status.conditions"


def _without_reported(claim: JsonObject | None) -> JsonObject:
    copy = deep_copy(claim or {})
    for field in ("resourceVersion", "managedFields"):
        get_object(copy, "metadata").pop(field, None)
    for field in _CLAIM_STATUS:
        get_object(copy, "status").pop(field, None)
    return copy


def _lease(node: str, attributes: AdmissionAttributes) -> str:
    if attributes.ctx.namespace != _LEASE_NAMESPACE:
        return f"can only access leases in the {go_quote(_LEASE_NAMESPACE)} system namespace"
    if object_name(attributes) != node:
        return "can only access node lease with the same name as the requesting node"
    return ""


def _csi_node(node: str, attributes: AdmissionAttributes) -> str:
    if object_name(attributes) != node:
        return "can only access CSINode with the same name as the requesting node"
    return ""
