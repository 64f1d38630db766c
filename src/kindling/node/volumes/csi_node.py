"""What registered CSI drivers say of their node, as annotations and labels of the Node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from kubecore.json import JsonObject
from kubecore.objects import meta

NODE_IDS = "csi.volume.kubernetes.io/nodeid"
"""Of a Node: the IDs that drivers have for it, as a JSON object by driver."""


@dataclass(slots=True)
class NodeChange:
    """Metadata to patch into the Node, and topology that contradicts the labels it has."""

    labels: dict[str, str] = field(default_factory=dict)
    node_ids: str | None = None
    is_different: bool = False
    collisions: list[str] = field(default_factory=list)

    def patch(self) -> JsonObject:
        """The merge patch."""
        return {"metadata": {"labels": self.labels, "annotations": {NODE_IDS: self.node_ids}}}


def change(
    node: JsonObject, ids: Mapping[str, str], topologies: Mapping[str, Mapping[str, str]]
) -> NodeChange:
    """What to change on a Node whose drivers have these IDs and topologies, by driver.

    Labels stay when a driver is gone: volumes may be bound to them.
    """
    result = NodeChange(node_ids=_text(ids))
    for driver, segments in topologies.items():
        for key, value in segments.items():
            present = {**meta.labels(node), **result.labels}.get(key)
            if present is None:
                result.labels[key] = value
            elif present != value:
                result.collisions.append(
                    f'driver {driver} reported "{key}":"{value}" but existing label is "{key}":"{present}"'
                )
    known = meta.annotations(node).get(NODE_IDS)
    result.is_different = bool(result.labels) or known != result.node_ids
    return result


def _text(ids: Mapping[str, str]) -> str | None:
    return orjson.dumps(dict(ids), option=orjson.OPT_SORT_KEYS).decode() if ids else None
