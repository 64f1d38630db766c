"""Removing images that nobody uses: those unused for longest first, when the disk fills."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kindling.node.images.references import normalize, problem
from kindling.node.options import NodeOptions
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Image, RuntimeFailure
from kindling.node.stats.disk import FileSystem, file_system
from kubecore.json import JsonObject, get_list, get_str

_log = logging.getLogger(__name__)

MINIMUM_AGE_SECONDS = 120.0
"""An image that was just pulled is not removed before the pod that wants it can use it."""
LOADED_IMAGES = "loaded-images"
"""In the node's /var/lib/kubelet: the names of images that were loaded from archives."""
_BUILT_IN = "kindling.local/"


@dataclass(frozen=True, slots=True)
class Record:
    """When an image was first seen here, and when it was last in use (0: never); seconds."""

    seen: float
    used: float = 0.0


def references_of(pod: JsonObject) -> set[str]:
    """The images that a pod refers to, those of its volumes included."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    names = {get_str(item, "image") for kind in kinds for item in get_list(pod, "spec", kind)}
    names |= {get_str(volume, "image", "reference") for volume in get_list(pod, "spec", "volumes")}
    return {normalize(name) for name in names - {""} if not problem(name)}


def observed(
    known: Mapping[str, Record], images: Iterable[Image], used: set[str], now: float
) -> dict[str, Record]:
    """The records, by image, with what is here and in use now."""
    records = {}
    for image in images:
        record = known.get(image.id, Record(now))
        records[image.id] = replace(record, used=now) if _is_used(image, used) else record
    return records


def candidates(
    images: Iterable[Image], used: set[str], records: Mapping[str, Record], now: float, minimum_age: float
) -> list[Image]:
    """Images that may go, the first to go first: unused for longest, then here for longest."""

    def may_go(image: Image) -> bool:
        built_in = any(tag.startswith(_BUILT_IN) for tag in image.tags)
        young = now - records[image.id].seen < minimum_age
        return not (image.pinned or built_in or young or _is_used(image, used))

    return sorted(filter(may_go, images), key=lambda image: (records[image.id].used, records[image.id].seen))


def excess(system: FileSystem, high: int, low: int) -> int:
    """How many bytes must be freed: down to `low` percent once more than `high` are used."""
    if system.capacity <= 0:
        return 0
    used = system.capacity - system.available
    if used * 100 < system.capacity * high:
        return 0
    return used - system.capacity * low // 100


def loaded_images(file: Path) -> set[str]:
    """The names in the file of loaded images. Raises OSError."""
    try:
        return set(file.read_text().split())
    except FileNotFoundError:
        return set()


def _is_used(image: Image, used: set[str]) -> bool:
    return bool({image.id, *image.tags, *image.digests} & used)


class ImageCollector:
    """Removes unused images of one node.

    `pods` lists the node's pods; `record_node_event` tells a Warning about the node (reason, message). The
    file `loaded` names images that were loaded from archives, one a line: no registry has them, so they stay.
    """

    def __init__(
        self,
        runtime: Containerd,
        options: NodeOptions,
        pods: Callable[[], Sequence[JsonObject]],
        record_node_event: Callable[[str, str], None],
        loaded: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._pods = pods
        self._record_node_event = record_node_event
        self._loaded = loaded
        self._clock = clock
        self._records: dict[str, Record] = {}

    async def collect(self) -> None:
        """Free as much as the thresholds want. Raises RuntimeFailure, OSError."""
        images, used = await self._look()
        place, *_ = await self._runtime.image_file_system()
        system = await asyncio.to_thread(file_system, place)
        wanted = excess(system, self._options.image_gc_high, self._options.image_gc_low)
        if wanted <= 0:
            return
        now = self._clock()
        freed = await self._remove(candidates(images, used, self._records, now, MINIMUM_AGE_SECONDS), wanted)
        if freed < wanted:
            text = (
                f"Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, "
                f"but only found {freed} bytes eligible to free."
            )
            self._record_node_event("FreeDiskSpaceFailed", text)

    async def remove_unused(self) -> None:
        """Remove every image that nobody uses. Raises RuntimeFailure."""
        images, used = await self._look()
        await self._remove(candidates(images, used, self._records, self._clock(), 0), None)

    async def _look(self) -> tuple[list[Image], set[str]]:
        # Pods are listed last: one that comes meanwhile has its images in use.
        images = await self._runtime.list_images()
        used = {
            reference
            for container in await self._runtime.list_containers()
            for reference in (container.image_ref, container.image, _normal(container.image))
        }
        for pod in self._pods():
            used |= references_of(pod)
        used |= await asyncio.to_thread(loaded_images, self._loaded)
        self._records = observed(self._records, images, used, self._clock())
        return images, used

    async def _remove(self, images: Sequence[Image], wanted: int | None) -> int:
        freed = 0
        for image in images:
            if wanted is not None and freed >= wanted:
                break
            _log.info("removing unused image %s", image.tags or image.id)
            try:
                await self._runtime.remove_image(image.id)
            except RuntimeFailure as error:
                _log.warning("unused image %s is not removed, trying again: %s", image.id, error)
                continue
            freed += image.size
        return freed


def _normal(reference: str) -> str:
    return reference if problem(reference) else normalize(reference)
