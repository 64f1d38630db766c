"""Where volumes may and should be: what is asked of the driver, and the nodes of its answer.

The table of what is asked (strict or not, with or without a chosen node, with or without the class's allowed
topologies) is that of the external-provisioner's README.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubecore.json import JsonObject
from kubecore.wire import Message
from virtplane.api.affinity_v1 import NodeSelectorRequirement
from virtplane.api.storage_kinds import (
    CSINode,
    LabelledNode,
    StorageClass,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from virtplane.storage.csi.parts import Problem

Term = tuple[tuple[str, str], ...]
"""A place: labels and their values, sorted."""


class NodeMissing(Problem):
    """The chosen node, or what its kubelet says of drivers, is not there: another must be chosen."""


def requirement(
    driver: str,
    claim_name: str,
    storage_class: StorageClass,
    chosen_node: str,
    nodes: Mapping[str, LabelledNode],
    csi_nodes: Mapping[str, CSINode],
    *,
    strict: bool,
    immediate: bool,
) -> dict[str, Any] | None:
    """CSI's TopologyRequirement; None for no requirement. Raises Problem, NodeMissing."""
    allowed = _flattened(storage_class.allowed_topologies)
    chosen: Term = ()
    keys: Sequence[str] = ()
    if chosen_node:
        keys = _keys_of(driver, chosen_node, csi_nodes)
        chosen = _place(chosen_node, keys, nodes)
    if chosen_node and strict:
        if allowed and not any(_is_within(term, chosen) for term in allowed):
            raise Problem(
                f"selected node '{chosen_node!r}' topology '{_text([chosen])}' is not in allowed topologies: "
                f"{_text(allowed)}"
            )
        wanted = [chosen]
    elif allowed:
        wanted = allowed
    elif not chosen_node and not immediate:
        return None
    else:
        wanted = _aggregated(driver, keys, nodes, csi_nodes)
    wanted = sorted(set(wanted), key=lambda term: (len(term), term))
    if not wanted:
        raise Problem("no available topology found")
    return {
        "requisite": _messages(wanted),
        "preferred": _messages(_preferred(wanted, chosen, chosen_node, claim_name, strict=strict)),
    }


def _preferred(
    wanted: list[Term], chosen: Term, chosen_node: str, claim_name: str, *, strict: bool
) -> list[Term]:
    """The wanted places in the order in which the driver should try them."""
    if chosen_node and strict:
        return wanted
    if chosen_node:
        start = next((index for index, term in enumerate(wanted) if _is_within(term, chosen)), -1)
        if start < 0:
            raise Problem(
                f'topology {_text([chosen])} from selected node "{chosen_node}" is not in requisite: '
                f"{_text(wanted)}"
            )
    else:
        start = _spread(claim_name) % len(wanted)
    return [*wanted[start:], *wanted[:start]]


def _keys_of(driver: str, node: str, csi_nodes: Mapping[str, CSINode]) -> Sequence[str]:
    found = csi_nodes.get(node)
    if found is None:
        raise NodeMissing(f'failed to get selected CSINode {node}: csinode.storage.k8s.io "{node}" not found')
    there = found.driver(driver)
    if there is None or not there.topology_keys:
        raise Problem(f"no topology key found for node {node}")
    return there.topology_keys


def _place(name: str, keys: Sequence[str], nodes: Mapping[str, LabelledNode]) -> Term:
    node = nodes.get(name)
    labels = node.metadata.labels if node is not None else {}
    if any(key not in labels for key in keys):
        raise Problem(
            f"topology labels from selected node {_labels_text(labels)} does not match topology keys from "
            f"CSINode [{' '.join(keys)}]"
        )
    return _term(labels, keys)


def _aggregated(
    driver: str,
    chosen_keys: Sequence[str],
    nodes: Mapping[str, LabelledNode],
    csi_nodes: Mapping[str, CSINode],
) -> list[Term]:
    """The places of all nodes that have the keys of the chosen node, or of any node with the driver."""
    keys = chosen_keys
    if not keys:
        found = [node.driver(driver) for _, node in sorted(csi_nodes.items())]
        keys = next((each.topology_keys for each in found if each is not None and each.topology_keys), ())
    if not keys:
        raise Problem("no available topology found")
    labels = [node.metadata.labels for node in nodes.values()]
    terms = [_term(each, keys) for each in labels if all(key in each for key in keys)]
    if not terms:
        raise Problem(f"topologyKeys [{' '.join(keys)}] were not found on any nodes")
    return terms


def _term(labels: Mapping[str, str], keys: Iterable[str]) -> Term:
    return tuple(sorted((key, labels[key]) for key in keys))


def _flattened(allowed: Sequence[TopologySelectorTerm]) -> list[Term]:
    """Every combination of labels that the class allows."""
    terms: list[Term] = []
    for selector in allowed:
        choices = [[(each.key, value) for value in each.values] for each in selector.match_label_expressions]
        terms += [tuple(sorted(combination)) for combination in itertools.product(*choices) if combination]
    return terms


def _is_within(term: Term, place: Term) -> bool:
    return set(term) <= set(place)


def _messages(terms: Iterable[Term]) -> list[dict[str, Any]]:
    return [{"segments": dict(term)} for term in terms]


def _text(terms: Iterable[Term]) -> str:
    places = ["{" + " ".join(f"{key}={value}" for key, value in term) + "}" for term in terms]
    return f"[{' '.join(places)}]"


def _labels_text(labels: Mapping[str, str]) -> str:
    return "map[" + " ".join(f"{key}:{value}" for key, value in sorted(labels.items())) + "]"


def _spread(claim_name: str) -> int:
    """A number that differs between claims, and by one between those of neighbours in a StatefulSet."""
    if not claim_name:
        return random.getrandbits(32)
    base, dash, last = claim_name.rpartition("-")
    if not dash or not (last.isascii() and last.isdigit() and int(last) < 2**32):
        return _fnv32(claim_name)
    return (_fnv32(base.rpartition("-")[2]) + int(last)) % 2**32


def _fnv32(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        value = (value * 16777619 % 2**32) ^ byte
    return value


def node_affinity(accessible: Sequence[Message]) -> JsonObject | None:
    """The nodes from which a volume can be reached, of the places in a driver's answer."""
    if not accessible:
        return None
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in sorted(place.segments.items())
            ]
        }
        for place in accessible
        if place.segments
    ]
    return {"required": {"nodeSelectorTerms": terms}}


def is_accessible(affinity: VolumeNodeAffinity | None, labels: Mapping[str, str]) -> bool:
    """Whether a volume can be reached from a node with these `labels`."""
    if affinity is None or affinity.required is None:
        return True
    return any(
        bool(term.match_expressions or term.match_fields)
        and not term.match_fields
        and all(_matches(each, labels) for each in term.match_expressions)
        for term in affinity.required.node_selector_terms
    )


def _matches(wanted: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return value is not None and value in wanted.values
        case "NotIn":
            return value is None or value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and wanted.values:
            try:
                ours, theirs = int(value), int(wanted.values[0])
            except ValueError:
                return False
            return ours > theirs if wanted.operator == "Gt" else ours < theirs
    return False
