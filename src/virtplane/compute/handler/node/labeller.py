"""The node's labels, which tell what guests can use here."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import NODES
from kubecore.runtime import EventRecorder
from virtplane.api import labels as names
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.api import FAILURES, in_time
from virtplane.compute.handler.node import processor
from virtplane.compute.handler.node.processor import Processor
from virtplane.compute.handler.node.rounds import Rounds

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 180.0
_JITTER = 1.2
_RETRY_SECONDS = 1.0
_EVENT = "HostModelIsObsolete"

_OWN_PREFIXES = (
    names.CPU_FEATURE_PREFIX,
    names.CPU_MODEL_MIGRATION_PREFIX,
    names.CPU_MODEL_PREFIX,
    names.CPU_TIMER_PREFIX,
    names.CPU_VENDOR_PREFIX,
    names.HOST_MODEL_CPU_PREFIX,
    names.HOST_MODEL_FEATURES_PREFIX,
    names.HYPERV_PREFIX,
    names.MACHINE_TYPE_PREFIX,
    names.OBSOLETE_HOST_MODEL,
    names.VM_ARCHITECTURE_PREFIX,
)
"""Labels with these prefixes belong to this module: stale ones are removed."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What this node offers to guests."""

    machines: tuple[str, ...] = ()
    """Machine types, aliases included."""
    processor: Processor = field(default_factory=Processor)
    hyperv: tuple[str, ...] = ()


def wanted_labels(offers: Offers, config: ClusterConfig) -> dict[str, str]:
    """The labels that the node should have."""
    found = processor.labels(offers.processor, config.obsolete_cpu_models)
    found |= {names.MACHINE_TYPE_PREFIX + name: "true" for name in offers.machines}
    found |= {names.HYPERV_PREFIX + name: "true" for name in offers.hyperv}
    if config.gate("CrossArchitectureVirtualization"):
        found[f"{names.VM_ARCHITECTURE_PREFIX}amd64"] = "true"
    return found


def changes(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """The patch of the labels: new and changed ones, and None for labels to remove."""
    stale = [name for name in present if name.startswith(_OWN_PREFIXES) and name not in wanted]
    fresh = {name: value for name, value in wanted.items() if present.get(name) != value}
    return {**fresh, **dict.fromkeys(stale)}


def is_skipped(node: JsonObject) -> bool:
    """Whether the node's owner has disabled labelling."""
    return meta.annotations(node).get(names.SKIP_NODE, "false") != "false"


class NodeLabeller:
    """Updates the node's labels: at the start, every few minutes, and when the configuration changes."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        node_name: str,
        offers: Offers,
        config: Callable[[], ClusterConfig],
    ) -> None:
        self.has_labelled = False
        """True once guests can find what they ask for."""
        self._client = client
        self._recorder = recorder
        self._node_name = node_name
        self._offers = offers
        self._config = config
        self.rounds = Rounds()

    async def run(self) -> None:
        """Label until cancelled."""
        await self.rounds.run(self._round)

    async def _round(self) -> float:
        try:
            await self.label()
        except FAILURES as error:
            extra = {"node": self._node_name, "err": str(error)}
            logger.info("The labels of the node could not be updated; trying again", extra=extra)
            return _RETRY_SECONDS
        return _INTERVAL_SECONDS * random.uniform(1.0, _JITTER)

    async def label(self) -> None:
        """Update the labels once. Raises StatusError, ConnectionFailed."""
        node = await in_time(self._client.get(NODES, self._node_name))
        if not is_skipped(node):
            wanted = wanted_labels(self._offers, self._config())
            differing = changes(meta.labels(node), wanted)
            if differing:
                patch: JsonObject = {"metadata": {"labels": differing}}
                node = await in_time(self._client.patch(NODES, self._node_name, patch, type="strategic"))
            if differing.get(names.OBSOLETE_HOST_MODEL):
                self._warn_of_obsolete_cpu(node)
        self.has_labelled = True

    def _warn_of_obsolete_cpu(self, node: JsonObject) -> None:
        text = f"guests cannot have this node's CPU model {self._offers.processor.host_model}: it is obsolete"
        self._recorder.event(node | {"kind": "Node", "apiVersion": "v1"}, "Warning", _EVENT, text)
