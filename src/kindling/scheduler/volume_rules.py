"""Rules between a pod's claims and nodes: the node affinity of volumes, and claims to bind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kindling.scheduler import node_rules
from kindling.scheduler.snapshot import NodeInfo, Snapshot, Volumes
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.claim import is_bound
from kubecore.objects.quantity import Quantity
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.storage_class import class_of

NO_PROVISIONER = "kubernetes.io/no-provisioner"
CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
SINGLE_POD_IN_USE = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)


def claims_of(pod: JsonObject) -> list[tuple[str, bool]]:
    """The names of a pod's claims; each with whether it is of an ephemeral volume: then the pod owns it."""
    names = []
    for volume in get_list(pod, "spec", "volumes"):
        if "persistentVolumeClaim" in volume:
            names.append((get_str(volume, "persistentVolumeClaim", "claimName"), False))
        elif "ephemeral" in volume:
            names.append((f"{meta.name(pod)}-{volume['name']}", True))
    return names


def claim_names(pod: JsonObject) -> list[str]:
    """The names of a pod's claims, including those of its ephemeral volumes."""
    return [name for name, _ in claims_of(pod)]


def claim_keys(pod: JsonObject) -> list[str]:
    """``namespace/name`` of a pod's claims, to index pods by."""
    return [f"{meta.namespace(pod)}/{name}" for name in claim_names(pod)]


def attributes_class(obj: JsonObject) -> str:
    """The VolumeAttributesClass of a claim or volume; empty for none."""
    return get_str(obj, "spec", "volumeAttributesClassName")


def node_fits_volume(volume: JsonObject, node: JsonObject) -> bool:
    """Whether a volume can be reached from the node."""
    required = get_object(volume, "spec", "nodeAffinity").get("required")
    return required is None or node_rules.matches_node_selector(required, node)


def volume_fits_claim(volume: JsonObject, claim: JsonObject) -> bool:
    """Whether an unbound volume could serve the claim: class, modes, size, labels, reservation."""
    reference = get_object(volume, "spec").get("claimRef")
    if reference and (reference.get("namespace"), reference.get("name")) != meta.key(claim):
        return False
    if reference and reference.get("uid") and reference["uid"] != meta.uid(claim):
        return False
    if meta.is_being_deleted(volume) or class_of(volume) != class_of(claim):
        return False
    if not reference and has_data_source(claim):
        return False  # only who fills a volume from the source knows which volume that is, and reserves it
    if attributes_class(volume) != attributes_class(claim):
        return False
    if get_str(volume, "status", "phase") not in ("Available", "Pending", "") and not reference:
        return False
    modes = get_str(volume, "spec", "volumeMode", default="Filesystem")
    if modes != get_str(claim, "spec", "volumeMode", default="Filesystem"):
        return False
    if not set(get_list(claim, "spec", "accessModes")) <= set(get_list(volume, "spec", "accessModes")):
        return False
    selector = get_object(claim, "spec").get("selector")
    if selector is not None and not from_label_selector_object(selector).matches(meta.labels(volume)):
        return False
    return capacity(volume) >= request(claim)


def capacity(volume: JsonObject) -> int:
    """The capacity of a volume in bytes."""
    return Quantity.parse(get_object(volume, "spec", "capacity").get("storage", 0)).value


def request(claim: JsonObject) -> int:
    """The storage request of a claim in bytes."""
    return Quantity.parse(get_object(claim, "spec", "resources", "requests").get("storage", 0)).value


def size_of(claim: JsonObject) -> int:
    """The size that a claim's status says its volume has, in bytes; 0 when it says none."""
    return Quantity.parse(get_object(claim, "status", "capacity").get("storage", 0)).value


def has_data_source(claim: JsonObject) -> bool:
    """Whether the claim's volume must be made from a snapshot, a claim or a populator's object."""
    spec = get_object(claim, "spec")
    return bool(spec.get("dataSource") or spec.get("dataSourceRef"))


def smallest_fit(volumes: Iterable[JsonObject], claim: JsonObject) -> JsonObject | None:
    """The best volume for the claim: one reserved for it, else the smallest that fits."""
    fitting = [volume for volume in volumes if volume_fits_claim(volume, claim)]
    reserved = [volume for volume in fitting if get_object(volume, "spec").get("claimRef")]
    return min(reserved or fitting, key=lambda found: (capacity(found), meta.name(found)), default=None)


@dataclass(slots=True)
class Binding:
    """What must happen to a pod's claims before the pod is bound to the node."""

    bind: list[tuple[JsonObject, JsonObject]] = field(default_factory=list)
    """Claims with the volumes chosen for them."""
    provision: list[JsonObject] = field(default_factory=list)
    """Claims whose driver makes a volume for the node."""


class VolumeRules:
    """The claims of one pod."""

    def __init__(self, pod: JsonObject, snapshot: Snapshot) -> None:
        self._pod = pod
        self._volumes: Volumes = snapshot.volumes
        self.problem = ""
        """Why the pod can go nowhere, or nothing."""
        self.bound: list[JsonObject] = []
        self.delayed: list[JsonObject] = []
        self._single: set[str] = set()
        for name in claim_names(pod):
            self._classify(name)
            if self.problem:
                break
        self._users = {
            (meta.namespace(placed), name) for _, placed in snapshot.pods() for name in claim_names(placed)
        }

    def _classify(self, name: str) -> None:
        namespace = meta.namespace(self._pod)
        claim = self._volumes.claim(namespace, name)
        if claim is None:
            self.problem = f'persistentvolumeclaim "{name}" not found'
            return
        if meta.is_being_deleted(claim):
            self.problem = f'persistentvolumeclaim "{name}" is being deleted'
            return
        if "ReadWriteOncePod" in get_list(claim, "spec", "accessModes"):
            self._single.add(name)
        if is_bound(claim):
            volume = self._volumes.volume(get_str(claim, "spec", "volumeName"))
            if volume is None:
                self.problem = f'persistentvolume "{get_str(claim, "spec", "volumeName")}" not found'
            else:
                self.bound.append(volume)
        elif self._waits(claim) and not get_str(claim, "spec", "volumeName"):
            self.delayed.append(claim)
        else:
            self.problem = UNBOUND

    def _waits(self, claim: JsonObject) -> bool:
        found = self._volumes.storage_class(class_of(claim)) if class_of(claim) else None
        return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"

    @property
    def single_in_use(self) -> bool:
        """Whether another pod uses a claim with access mode ReadWriteOncePod."""
        namespace = meta.namespace(self._pod)
        return any((namespace, name) in self._users for name in self._single)

    def failure(self, node: NodeInfo) -> str:
        """Why the pod's volumes cannot be used on the node; None if they can."""
        if any(not node_fits_volume(volume, node.node) for volume in self.bound):
            return CONFLICT
        return "" if self.binding(node) is not None else NOTHING_TO_BIND

    def binding(self, node: NodeInfo) -> Binding | None:
        """How to bind the pod's unbound claims on that node; None if that is impossible."""
        result = Binding()
        taken: set[str] = set()
        for claim in sorted(self.delayed, key=request):
            selected = meta.annotations(claim).get("volume.kubernetes.io/selected-node")
            if selected and selected != node.name:
                return None
            candidates = (
                volume
                for volume in self._volumes.available()
                if meta.name(volume) not in taken and node_fits_volume(volume, node.node)
            )
            chosen = None if selected else smallest_fit(candidates, claim)
            if chosen is not None:
                taken.add(meta.name(chosen))
                result.bind.append((claim, chosen))
            elif self._can_provision(claim, node):
                result.provision.append(claim)
            else:
                return None
        return result

    def _can_provision(self, claim: JsonObject, node: NodeInfo) -> bool:
        found = self._volumes.storage_class(class_of(claim))
        if found is None or found.get("provisioner") in (None, NO_PROVISIONER):
            return False
        terms = get_list(found, "allowedTopologies")
        return not terms or any(_in_topology(term, node) for term in terms)


def _in_topology(term: JsonObject, node: NodeInfo) -> bool:
    return all(
        node.labels.get(entry.get("key", "")) in (entry.get("values") or [])
        for entry in get_list(term, "matchLabelExpressions")
    )
