"""The node authorizer: a node may access its own objects and read what its pods refer to.

The rules are those of Kubernetes. Relations between pods and objects are looked up for each request instead
of in a graph: nodes ask seldom, and there is no graph to keep up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.field_selectors import parse_field_selector
from kubecore.objects.fields import go_quote
from kubecore.objects.selectors import SelectorError
from kubecore.resources import PERSISTENT_VOLUMES, PODS, VOLUME_ATTACHMENTS

from ..registry.admission import AuthorizationQuery
from ..registry.context import ObjectReader, UserInfo
from . import pod_references
from .bootstrap_rules import NODE_RULES

_GROUP = "system:nodes"
_PREFIX = "system:node:"
_LEASE_NAMESPACE = "kube-node-lease"
_MIRROR = "kubernetes.io/config.mirror"
_OWN_OBJECT_VERBS = ("get", "create", "update", "patch", "delete")
_READS = ("get", "list", "watch")

_Answer = tuple[bool, str]
_ALLOWED: _Answer = (True, "")
_NO_OPINION: _Answer = (False, "")


def node_of(user: UserInfo) -> str | None:
    """The node name of a user in system:nodes; "" without a name, None for other users."""
    if _GROUP not in user.groups:
        return None
    return user.name.removeprefix(_PREFIX) if user.name.startswith(_PREFIX) else None


class NodeAuthorizer:
    """Authorizes nodes; it allows or has no opinion, it never denies."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._parts: dict[tuple[str, str], Callable[[str, AuthorizationQuery], _Answer]] = {
            ("", "secrets"): self._referenced,
            ("", "configmaps"): self._referenced,
            ("", "persistentvolumeclaims"): self._claim,
            ("", "persistentvolumes"): self._single,
            ("storage.k8s.io", "volumeattachments"): self._single,
            ("", "serviceaccounts"): self._token,
            ("coordination.k8s.io", "leases"): _lease,
            ("storage.k8s.io", "csinodes"): _csi_node,
            ("", "nodes"): _node,
            ("", "pods"): self._pod,
        }

    def authorize(self, query: AuthorizationQuery) -> tuple[bool, str]:
        """(allowed, reason). Users that are not nodes are neither allowed nor given a reason."""
        node = node_of(query.user)
        if node is None:
            return _NO_OPINION
        if not node:
            return False, f"unknown node for user {go_quote(query.user.name)}"
        part = self._parts.get((query.group, query.resource))
        if part is not None:
            return part(node, query)
        return any(rule.allows(query) for rule in NODE_RULES), ""

    def _referenced(self, node: str, query: AuthorizationQuery) -> _Answer:
        if query.verb not in _READS:
            return False, "can only read resources of this type"
        if query.subresource:
            return False, "cannot read subresource"
        if not query.namespace:
            return False, "can only read namespaced object of this type"
        return self._related(node, query)

    def _claim(self, node: str, query: AuthorizationQuery) -> _Answer:
        if query.subresource != "status":
            return self._single(node, query)
        if query.verb not in ("update", "patch"):
            return False, "can only get/update/patch this type"
        return self._related(node, query)

    def _single(self, node: str, query: AuthorizationQuery) -> _Answer:
        if query.verb != "get":
            return False, "can only get individual resources of this type"
        if query.subresource:
            return False, "cannot get subresource"
        return self._related(node, query)

    def _token(self, node: str, query: AuthorizationQuery) -> _Answer:
        if query.verb != "create" or not query.name:
            return False, "can only create tokens for individual service accounts"
        if query.subresource != "token":
            return False, "can only create token subresource of serviceaccount"
        return self._related(node, query)

    def _pod(self, node: str, query: AuthorizationQuery) -> _Answer:
        if query.subresource:
            verbs = {"status": ("update", "patch"), "eviction": ("create",)}.get(query.subresource, ())
            return query.verb in verbs, ""
        if query.verb in ("create", "delete"):
            return _ALLOWED
        if query.verb == "get":
            return self._single(node, query)
        if query.verb not in ("list", "watch"):
            return _NO_OPINION
        if _selected_node(query.field_selector) == node:
            return _ALLOWED
        if query.name:
            return self._related(node, query)
        return False, "can only list/watch pods with spec.nodeName field selector"

    def _related(self, node: str, query: AuthorizationQuery) -> _Answer:
        if not query.name:
            return False, "No Object name found"
        if self._is_related(node, query.resource, query.namespace, query.name):
            return _ALLOWED
        return False, f"no relationship found between node '{node}' and this object"

    def _is_related(self, node: str, plural: str, namespace: str, name: str) -> bool:
        match plural:
            case "pods":
                return any(get_str(pod, "metadata", "name") == name for pod in self._pods(node, namespace))
            case "secrets":
                return self._names(node, namespace, name, pod_references.secrets) or (
                    self._is_volume_secret(node, namespace, name)
                )
            case "configmaps":
                return self._names(node, namespace, name, pod_references.config_maps)
            case "persistentvolumeclaims":
                return self._names(node, namespace, name, pod_references.claims)
            case "serviceaccounts":
                return self._names(node, namespace, name, _account)
            case "volumeattachments":
                attachment = self._objects.get(VOLUME_ATTACHMENTS, None, name) or {}
                return get_str(attachment, "spec", "nodeName") == node
            case _:
                volume = self._objects.get(PERSISTENT_VOLUMES, None, name)
                return volume is not None and self._is_volume_in_use(node, volume)

    def _pods(self, node: str, namespace: str) -> Iterable[JsonObject]:
        """Pods bound to the node, without mirror pods, which a node creates itself."""
        for pod in self._objects.list(PODS, namespace):
            if get_str(pod, "spec", "nodeName") == node and not get_str(
                pod, "metadata", "annotations", _MIRROR
            ):
                yield pod

    def _names(
        self, node: str, namespace: str, name: str, references: Callable[[JsonObject], Iterable[str]]
    ) -> bool:
        return any(name in references(pod) for pod in self._pods(node, namespace))

    def _is_volume_in_use(self, node: str, volume: JsonObject) -> bool:
        claim = get_object(volume, "spec", "claimRef")
        namespace, name = get_str(claim, "namespace"), get_str(claim, "name")
        return bool(name) and self._names(node, namespace, name, pod_references.claims)

    def _is_volume_secret(self, node: str, namespace: str, name: str) -> bool:
        """Whether a persistent volume used by a pod of the node refers to this secret."""
        wanted = (namespace, name)
        return any(
            wanted in pod_references.volume_secrets(volume) and self._is_volume_in_use(node, volume)
            for volume in self._objects.list(PERSISTENT_VOLUMES)
        )


def _account(pod: JsonObject) -> Iterable[str]:
    yield get_str(pod, "spec", "serviceAccountName")


def _selected_node(text: str) -> str | None:
    try:
        return parse_field_selector(text).exact("spec.nodeName") if text else None
    except SelectorError:
        return None


def _lease(node: str, query: AuthorizationQuery) -> _Answer:
    if query.verb not in _OWN_OBJECT_VERBS:
        return False, "can only get, create, update, patch, or delete a node lease"
    if query.namespace != _LEASE_NAMESPACE:
        return False, f'can only access leases in the "{_LEASE_NAMESPACE}" system namespace'
    if query.verb != "create" and query.name != node:
        return False, "can only access node lease with the same name as the requesting node"
    return _ALLOWED


def _csi_node(node: str, query: AuthorizationQuery) -> _Answer:
    if query.verb not in _OWN_OBJECT_VERBS:
        return False, "can only get, create, update, patch, or delete a CSINode"
    if query.subresource:
        return False, "cannot authorize CSINode subresources"
    if query.verb != "create" and query.name != node:
        return False, "can only access CSINode with the same name as the requesting node"
    return _ALLOWED


def _node(node: str, query: AuthorizationQuery) -> _Answer:
    if query.subresource:
        return query.subresource == "status" and query.verb in ("update", "patch"), ""
    if query.verb in ("create", "update", "patch"):
        return _ALLOWED
    if query.verb not in _READS:
        return _NO_OPINION
    if query.name == node:
        return _ALLOWED
    if not query.name:
        return False, f"node '{node}' cannot read all nodes, only its own Node object"
    return False, f"node '{node}' cannot read '{query.name}', only its own Node object"
