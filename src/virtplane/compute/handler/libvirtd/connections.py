"""The connections to one launcher and to its libvirt: opened in the background, and reopened when they break.

Reading the state of a guest never waits for its launcher, so that a launcher that hangs affects no other
guest.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from kubecore.json import JsonObject
from virtplane.compute.handler.launchers.control import (
    LauncherBroken,
    LauncherGone,
    LauncherLink,
    LauncherNotReady,
    connect,
)
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.rate import RateLimit
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.words import repeatable

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.01
_LOOKS = 500
"""How often the socket is looked for at that pace; later, each reconcile looks once."""

_ATTEMPTS = (5, 5.0)
"""As many attempts in so many seconds: each ends with a look at the guest, which begins the next."""

_LASTING_SECONDS = 10.0
"""Shorter failures (the daemon is being restarted) are logged, but not reported on the instance."""

_ADVICE = "if this lasts, look at the pod's log; deleting the pod ends the guest"


class Connections:
    """`on_change` is called whenever a connection opens or breaks, or brings an event."""

    def __init__(self, name: str, paths: PodPaths, on_change: Callable[[], None]) -> None:
        self.link: LauncherLink | None = None
        self.hypervisor: Hypervisor | None = None
        self.has_daemon: bool | None = None
        """Whether the launcher has ever started libvirt's daemon; None while that is not known."""
        self.gone = False
        """True once the launcher has ended."""
        self.terminating = False
        """True once the launcher was told to end."""
        self.ping_failed = False
        """Whether a probe by the guest's agent has failed since somebody reset this."""
        self._name = name
        self._paths = paths
        self._on_change = on_change
        self._trouble = ""
        self._trouble_since = 0.0
        self._looks = _LOOKS
        self._attempts = RateLimit(*_ATTEMPTS, asyncio.get_running_loop().time)
        self._opening: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def is_ready(self) -> bool:
        """True while the launcher is connected."""
        return not self.gone and self.link is not None and self.link.alive

    @property
    def lasting_trouble(self) -> str:
        """Why the launcher or libvirt has not been reachable for a while; empty if they are."""
        lasts = asyncio.get_running_loop().time() - self._trouble_since >= _LASTING_SECONDS
        return self._trouble if lasts else ""

    def require_link(self) -> LauncherLink:
        """The connection to the launcher. Raises LauncherBroken if there is none."""
        if self.link is None:
            raise LauncherBroken(f"the launcher of {self._name} is not connected")
        return self.link

    def require_hypervisor(self) -> Hypervisor:
        """The connection to libvirt, which may be closed. Raises HypervisorError if there is none."""
        if self.hypervisor is None:
            raise HypervisorError("connect", f"libvirt of {self._name} is not connected")
        return self.hypervisor

    def keep(self) -> None:
        """Start opening connections that are not open. Does not wait for them."""
        is_opening = self._opening is not None and not self._opening.done()
        is_ending = self.link is not None and self.link.is_ending
        is_complete = self.is_ready and (self.has_daemon is False or self._is_connected)
        if self.gone or is_opening or is_ending or is_complete or self._attempts.exceeded():
            return
        self._opening = asyncio.create_task(self._open(), name=f"connect-{self._name}")

    async def open_hypervisor(self) -> Hypervisor:
        """Connect to the libvirt daemon that the launcher has started. Raises HypervisorError."""
        async with self._lock:
            if self.hypervisor is not None and not self.hypervisor.is_open:
                closed, self.hypervisor = self.hypervisor, None
                await closed.close()
            if self.hypervisor is None:
                self.hypervisor = await Hypervisor.open(self._paths.libvirt_socket, self._on_change)
            return self.hypervisor

    async def close(self) -> None:
        """Close the connections; launcher and guest keep running."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self.hypervisor is not None:
            hypervisor, self.hypervisor = self.hypervisor, None
            await hypervisor.close()
        if self.link is not None:
            link, self.link = self.link, None
            await link.close()

    def set_trouble(self, trouble: str) -> None:
        """Record why something is unreachable (empty: it is reachable), and log changes."""
        trouble = repeatable(trouble)
        if trouble == self._trouble:
            return
        if trouble:
            extra = {"vmi": self._name, "pod": self._paths.pod_uid, "err": trouble, "advice": _ADVICE}
            logger.warning("A guest's launcher or libvirt cannot be reached; trying again", extra=extra)
            if not self._trouble:
                self._trouble_since = asyncio.get_running_loop().time()
        else:
            logger.info("A guest's launcher and libvirt can be reached again", extra={"vmi": self._name})
        self._trouble = trouble

    @property
    def _is_connected(self) -> bool:
        return self.hypervisor is not None and self.hypervisor.is_open

    async def _open(self) -> None:
        try:
            await self._until_launcher_listens()
            link = await self._open_link()
            if not self._is_connected:
                answer = await link.request("ping")
                self.terminating = self.terminating or answer.get("terminating") is True
                self.has_daemon = _has_daemon(answer)
                if self.has_daemon:
                    await self.open_hypervisor()
            self.set_trouble("")
        except LauncherNotReady:
            # The directory is removed with the pod: no launcher will listen there any more.
            self.gone = not self._paths.root.exists()
        except LauncherGone:
            self.gone = True
        except (LauncherBroken, HypervisorError, OSError, ValueError) as error:
            self.set_trouble(str(error))
        self._on_change()

    async def _until_launcher_listens(self) -> None:
        """Wait until the control socket exists, up to a limit or until the pod is gone.

        Polls, since there is no event for it. A link is not followed: it may lead to what hangs.
        """
        while self._looks and not os.path.lexists(self._paths.control_socket) and self._paths.root.exists():
            self._looks -= 1
            await asyncio.sleep(_LOOK_SECONDS)

    async def _open_link(self) -> LauncherLink:
        if self.link is not None and not self.link.alive:
            broken, self.link = self.link, None
            await broken.close()
        if self.link is None:
            self.link = await connect(
                self._paths.control_socket,
                self._launcher_event,
                self._launcher_ended,
                pod_uid=self._paths.pod_uid,
            )
        return self.link

    def _launcher_event(self, event: JsonObject) -> None:
        self.terminating = self.terminating or event.get("event") == "terminating"
        self.ping_failed = self.ping_failed or event.get("event") == "ping-failed"
        self._on_change()

    def _launcher_ended(self, process_ended: bool) -> None:
        if process_ended:
            self.gone = True
        elif self.link is not None:
            self.set_trouble(f"launcher {self.link.process.pid}: {self.link.broken}")
        self._on_change()


def _has_daemon(answer: JsonObject) -> bool:
    """Whether a launcher has ever started libvirt's daemon; older launchers report only whether it runs
    now.
    """
    started = answer.get("started")
    return started if isinstance(started, bool) else isinstance(answer.get("libvirt"), int)
