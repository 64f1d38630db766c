"""Dumps of a guest's memory into hotplugged claims.

A dump has a file in the claim, whose name the instance's status has before QEMU begins to write: a dump that
was interrupted, with virt-handler or its connection, begins anew in the same file.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kubecore.objects.times import now_rfc3339
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.compute import hotplug
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor

logger = logging.getLogger(__name__)

SUFFIX = ".memory.dump"
_FILE = re.compile(rf"[a-z0-9][-a-z0-9.]{{0,1023}}{re.escape(SUFFIX)}", re.ASCII)
_QUOTED = 500
"""Characters of a failure that the status has: they are the word of the launcher's libvirt."""


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump, as far as it is. Times are in RFC 3339, empty before they are."""

    file: str
    """Its name in the claim."""
    started: str = ""
    ended: str = ""
    failure: str = ""


def file_name(instance: str, volume: str, now: datetime) -> str:
    """The name of a new dump's file."""
    return f"{instance}-{volume}-{now:%Y%m%d-%H%M%S}{SUFFIX}"


def is_over(entry: VolumeStatus) -> bool:
    """Whether the status says how the dump ended."""
    return entry.phase in (hotplug.DUMPED, hotplug.DUMP_FAILED)


class MemoryDumps:
    """The dumps of one guest, by volume. `on_change` is called when one has ended."""

    def __init__(self, domain: str, vmi: str, on_change: Callable[[], None]) -> None:
        self._domain = domain
        self._vmi = vmi
        self._on_change = on_change
        self._dumps: dict[str, Dump] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def found(self) -> Mapping[str, Dump]:
        """The dumps that are known."""
        return dict(self._dumps)

    def plan(self, instance: str, entry: VolumeStatus) -> str:
        """The file of the dump: the one that the status names, else a new one."""
        known = self._dumps.get(entry.name)
        if known is None:
            info = entry.memory_dump_volume
            told = (info.target_file_name or "") if info is not None else ""
            name = told if _FILE.fullmatch(told) else file_name(instance, entry.name, datetime.now(UTC))
            known = self._dumps[entry.name] = Dump(name)
        return known.file

    async def follow(self, entry: VolumeStatus, hypervisor: Hypervisor) -> None:
        """Begin the dump once the status names its file, unless it runs or has ended.

        Raises HypervisorError.
        """
        dump, info = self._dumps[entry.name], entry.memory_dump_volume
        is_told = entry.phase == hotplug.DUMPING and info is not None and info.target_file_name == dump.file
        if not is_told or dump.ended or entry.name in self._tasks:
            return
        if await hypervisor.has_job(self._domain):
            return  # a dump that an earlier connection began, for one
        self._dumps[entry.name] = replace(dump, started=now_rfc3339())
        run = self._run(entry.name, hypervisor)
        self._tasks[entry.name] = asyncio.create_task(run, name=f"memory-dump-{self._domain}")

    async def _run(self, volume: str, hypervisor: Hypervisor) -> None:
        failure = ""
        try:
            await hypervisor.dump_memory(self._domain, hotplug.plug_places(volume)[1])
        except HypervisorError as error:
            if not hypervisor.is_open:
                del self._tasks[volume]  # the daemon may go on; what became of it shows the next connection
                self._on_change()
                return
            failure = error.why[:_QUOTED] or str(error)
        del self._tasks[volume]
        dump = replace(self._dumps[volume], ended=now_rfc3339(), failure=failure)
        self._dumps[volume] = dump
        extra = {"vmi": self._vmi, "volume": volume, "file": dump.file, "err": failure}
        logger.info("A dump of the guest's memory has ended", extra=extra)
        self._on_change()

    def forget(self, keep: Collection[str]) -> None:
        """Forget the dumps of volumes that are no more; one that runs is remembered until it ends."""
        for name in self._dumps.keys() - set(keep) - self._tasks.keys():
            del self._dumps[name]

    @property
    def running(self) -> set[str]:
        """The volumes that QEMU writes to."""
        return set(self._tasks)

    async def close(self) -> None:
        """Wait for nothing: libvirt's daemon goes on, and the next virt-handler sees to it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
