"""Rules on nodes and on other pods, by which pods are placed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from virtplane.api.markers import (
    ATOMIC,
    REQUIRED,
    ApiStruct,
    Int32,
    describe,
    requested_one_of,
)
from virtplane.api.meta_v1 import LabelSelector


class NodeSelectorRequirement(ApiStruct, kw_only=True):
    """One comparison of a node's label or field with values."""

    key: Annotated[str, describe("Name of the label or field.")]
    operator: Annotated[
        str,
        requested_one_of("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"),
        describe("In, NotIn, Exists, DoesNotExist, Gt or Lt."),
    ]
    values: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Values; for Gt and Lt one number."),
    ] = ()


class NodeSelectorTerm(ApiStruct, kw_only=True):
    """Requirements on a node that must all hold."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    match_expressions: Annotated[
        tuple[NodeSelectorRequirement, ...], ATOMIC, describe("Comparisons of labels.")
    ] = ()
    match_fields: Annotated[
        tuple[NodeSelectorRequirement, ...],
        ATOMIC,
        describe("Comparisons of fields; only metadata.name."),
    ] = ()


class PreferredSchedulingTerm(ApiStruct, kw_only=True):
    """A node term with the weight it adds to a node's score (1-100)."""

    preference: Annotated[NodeSelectorTerm, describe("What the node should be like.")]
    weight: Annotated[Int32, describe("What such a node is worth: 1 to 100.")]


class NodeSelector(ApiStruct, kw_only=True):
    """Alternatives of node requirements; one of them must hold."""

    schema_marks: ClassVar[Mapping[str, Any]] = {"x-kubernetes-map-type": "atomic"}
    node_selector_terms: Annotated[
        tuple[NodeSelectorTerm, ...], ATOMIC, REQUIRED, describe("The alternatives.")
    ] = ()


class NodeAffinity(ApiStruct, kw_only=True):
    """Rules on the labels and fields of nodes."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...],
        ATOMIC,
        describe("Nodes to prefer; the weights of the terms that hold are added up."),
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None,
        describe("Nodes that are possible; not looked at again later."),
    ] = None


class PodAffinityTerm(ApiStruct, kw_only=True):
    """Pods, and the topology in which they count as near."""

    label_selector: Annotated[LabelSelector | None, describe("Labels of those pods; absent: none.")] = None
    match_label_keys: Annotated[tuple[str, ...], ATOMIC, describe("Labels that must equal this pod's.")] = ()
    mismatch_label_keys: Annotated[
        tuple[str, ...], ATOMIC, describe("Labels that must differ from this pod's.")
    ] = ()
    namespace_selector: Annotated[
        LabelSelector | None, describe("Namespaces of those pods by label; empty: all.")
    ] = None
    namespaces: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Namespaces of those pods; by default this pod's."),
    ] = ()
    topology_key: Annotated[
        str,
        describe("Label of nodes; equal values are one place."),
    ]


class WeightedPodAffinityTerm(ApiStruct, kw_only=True):
    """A pod term with the weight it adds to a node's score (1-100)."""

    pod_affinity_term: Annotated[PodAffinityTerm, describe("The other pods, and the place.")]
    weight: Annotated[Int32, describe("What such a node is worth: 1 to 100.")]


class PodAffinity(ApiStruct, kw_only=True):
    """Rules for running near other pods."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...],
        ATOMIC,
        describe("Places to prefer; the weights of the terms that hold are added up."),
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], ATOMIC, describe("Pods that must be in the place; all terms must hold.")
    ] = ()


class PodAntiAffinity(ApiStruct, kw_only=True):
    """Rules for running apart from other pods."""

    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...],
        ATOMIC,
        describe("Places to avoid; the weights of the terms that hold are added up."),
    ] = ()
    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...],
        ATOMIC,
        describe("Pods that must not be in the place; all terms must hold."),
    ] = ()
