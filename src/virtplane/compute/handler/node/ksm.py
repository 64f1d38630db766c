"""KSM: lets the node's kernel merge equal pages of guests while memory is short.

The installation chooses the nodes by their labels. How fast the kernel looks for pages follows from the
memory that is available: `plan` is pure. A node that was managed and is not any more is switched off once.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from kubecore.objects.structs import encode
from kubecore.resources import NODES
from virtplane.api import labels as names
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.compute.handler.api import FAILURES, in_time
from virtplane.compute.handler.node.rounds import Rounds
from virtplane.compute.handler.threads import in_thread
from virtplane.compute.handler.troubles import Trouble

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 180.0
_JITTER = 1.2
_BASE_KIB = 16 << 20
"""The used memory at which the kernel rests as long as the baseline says."""
_FASTEST = 10
"""It never rests shorter than this part of the baseline."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How KSM follows the memory; annotations of the node override the defaults, which are KubeVirt's."""

    boost: int = 300
    decay: int = -50
    least: int = 64
    most: int = 1250
    first: int = 100
    rest_milliseconds: int = 100
    free: float = 0.2
    """Less available memory than this part of the total is too little."""


@dataclass(frozen=True, slots=True)
class Ksm:
    """The kernel's settings."""

    is_running: bool
    pages: int
    """Pages that are looked at before a rest."""
    rest_milliseconds: int


def tuning(annotations: Mapping[str, str]) -> Tuning:
    """The tuning of a node. An override that is no number, or out of bounds, does not count."""
    found = Tuning()
    return Tuning(
        boost=_override(annotations, "pages-boost", found.boost),
        decay=_override(annotations, "pages-decay", found.decay),
        least=_override(annotations, "pages-min", found.least),
        most=_override(annotations, "pages-max", found.most),
        first=_override(annotations, "pages-init", found.first),
        rest_milliseconds=max(1, _override(annotations, "sleep-ms-baseline", found.rest_milliseconds)),
        free=_share(annotations.get(f"{names.KSM_OVERRIDE_PREFIX}free-percent-override"), found.free),
    )


def _override(annotations: Mapping[str, str], name: str, default: int) -> int:
    text = annotations.get(f"{names.KSM_OVERRIDE_PREFIX}{name}-override", "")
    try:
        return int(text)
    except ValueError:
        return default


def _share(text: str | None, default: float) -> float:
    try:
        found = float(text or "")
    except ValueError:
        return default
    return found if 0 <= found <= 1 else default


def plan(now: Ksm, total_kib: int, available_kib: int, wanted: Tuning) -> Ksm:
    """The next settings on a node with that memory."""
    used = max(1, total_kib - available_kib)
    baseline = wanted.rest_milliseconds
    rest = max(baseline * _BASE_KIB // used, baseline // _FASTEST)
    if available_kib > total_kib * wanted.free:
        pages = now.pages + wanted.decay
        if not now.is_running or pages < wanted.least:
            return Ksm(False, wanted.least if now.is_running else wanted.first, rest)
        return Ksm(True, pages, rest)
    pages = now.pages + wanted.boost if now.is_running else wanted.first
    return Ksm(True, max(wanted.least, min(pages, wanted.most)), rest)


class KernelKsm:
    """The files of KSM below the node's ``/sys``; they block for moments only."""

    def __init__(
        self,
        folder: Path = Path(paths.NODE_SYSFS, "kernel/mm/ksm"),
        meminfo: Path = Path("/proc/meminfo"),
    ) -> None:
        self._folder = folder
        self._meminfo = meminfo

    def adjust(self, wanted: Tuning) -> bool:
        """Set what `plan` says; returns whether KSM runs. Raises OSError, ValueError, KeyError."""
        words = (line.replace(":", " ").split() for line in self._meminfo.read_text().splitlines())
        memory = {parts[0]: int(parts[1]) for parts in words if len(parts) > 1}
        now = Ksm(self._read("run") == 1, self._read("pages_to_scan"), self._read("sleep_millisecs"))
        then = plan(now, memory["MemTotal"], memory["MemAvailable"], wanted)
        if then != now:
            self._write("sleep_millisecs", then.rest_milliseconds)
            self._write("pages_to_scan", then.pages)
            self._write("run", int(then.is_running))
        return then.is_running

    def switch_off(self) -> None:
        """Stop merging; pages that are merged stay so. Raises OSError."""
        self._write("run", 0)

    def _read(self, name: str) -> int:
        return int((self._folder / name).read_text())

    def _write(self, name: str, value: int) -> None:
        (self._folder / name).write_text(str(value))


class KsmKeeper:
    """Keeps KSM of this node as the installation wants: every few minutes, and when that changes."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        config: Callable[[], ClusterConfig],
        kernel: KernelKsm | None = None,
    ) -> None:
        self._client = client
        self._node_name = node_name
        self._config = config
        self._kernel = kernel or KernelKsm()
        self.rounds = Rounds()
        message = "KSM of the node cannot be set; trying again"
        self._trouble = Trouble(logger, message, node=node_name)
        self._was_managed = True
        """Unknown at the start: an earlier virt-handler may have managed the node."""

    async def run(self) -> None:
        """Keep it until cancelled."""
        await self.rounds.run(self._round)

    async def _round(self) -> float:
        try:
            await self.keep()
            self._trouble.over()
        except (*FAILURES, OSError, ValueError, KeyError) as error:
            self._trouble.met(error)
        return _INTERVAL_SECONDS * random.uniform(1.0, _JITTER)

    async def keep(self) -> None:
        """Look once. Raises StatusError, ConnectionFailed, OSError, ValueError, KeyError."""
        settings = self._config().configuration.ksm_configuration
        selector = settings.node_label_selector if settings is not None else None
        if selector is None and not self._was_managed:
            return
        node = await in_time(self._client.get(NODES, self._node_name))
        annotations = meta.annotations(node)
        is_chosen = selector is not None and from_label_selector_object(encode(selector)).matches(
            meta.labels(node)
        )
        is_on = False
        if is_chosen:
            is_on = await in_thread("ksm", self._kernel.adjust, tuning(annotations))
        elif annotations.get(names.KSM_MANAGED) == "true":
            await in_thread("ksm", self._kernel.switch_off)
        elif names.KSM_MANAGED not in annotations:
            self._was_managed = False
            return
        await self._tell(node, is_on=is_on, is_chosen=is_chosen)
        self._was_managed = is_chosen

    async def _tell(self, node: JsonObject, *, is_on: bool, is_chosen: bool) -> None:
        label, mark = str(is_on).lower(), str(is_chosen).lower()
        known = meta.labels(node).get(names.KSM_ENABLED), meta.annotations(node).get(names.KSM_MANAGED)
        if known != (label, mark):
            metadata = {"labels": {names.KSM_ENABLED: label}, "annotations": {names.KSM_MANAGED: mark}}
            patch: JsonObject = {"metadata": metadata}
            await in_time(self._client.patch(NODES, self._node_name, patch, type="strategic"))
