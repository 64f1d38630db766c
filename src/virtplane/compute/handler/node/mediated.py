"""Mediated devices (vGPUs) of the node: made of the types that the installation names, and removed again.

Only devices that virt-handler has made are removed, as their UUIDs show, and only once no process uses them.
What others have made of a parent's device stays; it is offered like ours (`hostdevices`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubecore.client import Client
from kubecore.objects import meta
from kubecore.resources import NODES
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.device_configuration import MediatedDevicesConfiguration
from virtplane.compute.handler.api import FAILURES, in_time
from virtplane.compute.handler.node.rounds import Rounds
from virtplane.compute.handler.threads import in_thread
from virtplane.compute.handler.troubles import Trouble

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0
_MOST_OF_A_TYPE = 256
"""More devices than this are not made of one type on one parent, whatever the driver says."""
_NAMESPACE = uuid.UUID("0b0f42a8-6d59-4b66-bd0c-6f0a5c3f3c5e")
_SWITCH = "DisableMDEVConfiguration"


@dataclass(frozen=True, slots=True)
class Offer:
    """A type of devices that a parent can still make `free` of; `devices` are there already, by UUID."""

    parent: str
    type: str
    name: str
    """As people call the type; empty where the driver says none."""
    free: int
    devices: tuple[str, ...] = ()

    def is_called(self, wanted: str) -> bool:
        """Whether the installation means this type."""
        return wanted == self.type or wanted.replace(" ", "_") == self.name.replace(" ", "_")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: so many devices to make of each offer, and UUIDs of devices to remove."""

    make: tuple[tuple[Offer, int], ...] = ()
    remove: tuple[str, ...] = ()


def wanted_types(
    settings: MediatedDevicesConfiguration | None, labels: Mapping[str, str]
) -> tuple[str, ...] | None:
    """The types for a node with these labels; None where the installation says nothing of such devices.

    Entries for the node count more than those for all nodes.
    """
    if settings is None or settings.enabled is False:
        return None
    own = [
        each
        for each in settings.node_mediated_device_types
        if all(labels.get(name) == value for name, value in each.node_selector.items())
    ]
    if not own:
        return settings.mediated_device_types or settings.mediated_devices_types
    named = (each.mediated_device_types or each.mediated_devices_types for each in own)
    return tuple(dict.fromkeys(name for names in named for name in names))


def plan(offers: Sequence[Offer], types: Sequence[str]) -> Plan:
    """Give each parent one of the wanted types, in turn, and as many devices of it as it can have.

    A parent that has devices of a wanted type keeps to it. Ours of other types go first.
    """
    remove = [
        device
        for offer in offers
        if not any(offer.is_called(name) for name in types)
        for device in offer.devices
        if is_ours(device, offer)
    ]
    chosen: dict[str, Offer] = {}
    for offer in offers:
        if offer.devices and any(offer.is_called(name) for name in types):
            chosen.setdefault(offer.parent, offer)
    while True:
        before = len(chosen)
        for name in types:
            fitting = (each for each in offers if each.is_called(name) and each.free > 0)
            found = next((each for each in fitting if each.parent not in chosen), None)
            if found is not None:
                chosen[found.parent] = found
        if len(chosen) == before:
            break
    make = tuple((each, min(each.free, _MOST_OF_A_TYPE)) for each in chosen.values() if each.free > 0)
    return Plan(make, tuple(remove))


def names_of(offer: Offer) -> Iterator[str]:
    """The UUIDs that virt-handler gives devices of a type on a parent."""
    for number in range(_MOST_OF_A_TYPE):
        yield str(uuid.uuid5(_NAMESPACE, f"{offer.parent}/{offer.type}/{number}"))


def is_ours(device: str, offer: Offer) -> bool:
    """Whether virt-handler made the device."""
    return device in names_of(offer)


class KernelDevices:
    """The node's kernel's files of mediated devices; reading and writing them may block."""

    def __init__(self, system: Path = Path(paths.NODE_SYSFS), processes: Path = Path("/proc")) -> None:
        self._system = system
        self._processes = processes

    def offers(self) -> list[Offer]:
        """What the parents on this node can make, in the order of their names."""
        folders = sorted((self._system / "class/mdev_bus").glob("*/mdev_supported_types/*"))
        return [found for folder in folders if (found := self._offer(folder)) is not None]

    def _offer(self, folder: Path) -> Offer | None:
        try:
            free = int((folder / "available_instances").read_text())
            devices = sorted(each.name for each in (folder / "devices").glob("*"))
        except (OSError, ValueError):
            return None  # the driver of the parent goes, or is not ready yet
        try:
            name = (folder / "name").read_text().strip()
        except OSError:
            name = ""
        return Offer(folder.parents[1].name, folder.name, name, free, tuple(devices))

    def make(self, offer: Offer, device: str) -> None:
        """Make a device with that UUID. Raises OSError."""
        folder = self._system / "class/mdev_bus" / offer.parent / "mdev_supported_types" / offer.type
        (folder / "create").write_text(device)

    def remove(self, device: str) -> None:
        """Remove a device. Raises OSError."""
        (self._system / "bus/mdev/devices" / device / "remove").write_text("1")

    def is_used(self, device: str) -> bool:
        """Whether a process has the device open: the kernel would wait for it. Raises OSError."""
        group = (self._system / "bus/mdev/devices" / device / "iommu_group").readlink().name
        wanted = f"/dev/vfio/{group}"
        return any(_is_link_to(each, wanted) for each in self._processes.glob("[0-9]*/fd/*"))


def _is_link_to(path: Path, wanted: str) -> bool:
    try:
        return str(path.readlink()) == wanted
    except OSError:
        return False  # closed since


class MediatedDevices:
    """Keeps the devices of this node as the installation wants: now and then, and when that changes."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        config: Callable[[], ClusterConfig],
        changed: Callable[[], None],
        kernel: KernelDevices | None = None,
    ) -> None:
        """`changed` is called when the node has other devices than before."""
        self._client = client
        self._node_name = node_name
        self._config = config
        self._changed = changed
        self._kernel = kernel or KernelDevices()
        self.rounds = Rounds()
        message = "The node's mediated devices cannot be set; trying again"
        self._trouble = Trouble(logger, message, node=node_name)

    async def run(self) -> None:
        """Keep them until cancelled."""
        await self.rounds.run(self._round)

    async def _round(self) -> float:
        try:
            await self.keep()
            self._trouble.over()
        except (*FAILURES, OSError) as error:
            self._trouble.met(error)
        return _LOOK_SECONDS

    async def keep(self) -> None:
        """Look once. Raises StatusError, ConnectionFailed, OSError."""
        config = self._config()
        if config.gate(_SWITCH):
            return
        settings = config.configuration.mediated_devices_configuration
        if settings is not None and settings.enabled is False:
            return
        offers = await in_thread("mediated-devices", self._kernel.offers)
        if not offers:
            return
        node = await in_time(self._client.get(NODES, self._node_name))
        types = wanted_types(settings, meta.labels(node)) or ()
        if await in_thread("mediated-devices", self._apply, plan(offers, types)):
            self._changed()

    def _apply(self, wanted: Plan) -> bool:
        """Do what the plan says; returns whether anything changed. Raises OSError for what failed last."""
        has_changed, failure = False, None
        for device in wanted.remove:
            try:
                if self._kernel.is_used(device):
                    logger.info(
                        "A mediated device is not wanted any more and still used", extra={"uuid": device}
                    )
                    continue
                self._kernel.remove(device)
                has_changed = True
            except OSError as error:
                failure = error
        for offer, count in wanted.make:
            free = (name for name in names_of(offer) if name not in offer.devices)
            for name, _ in zip(free, range(count), strict=False):
                try:
                    self._kernel.make(offer, name)
                    has_changed = True
                except OSError as error:
                    failure = error
                    break
        if failure is not None and not has_changed:
            raise failure
        return has_changed
