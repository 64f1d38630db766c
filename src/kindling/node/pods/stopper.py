"""Stopping pods and containers: preStop hooks, grace periods, order; and removing stopped ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kindling.node import files
from kindling.node.pods import identity
from kindling.node.pods.container import find_container, is_restartable
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.probes.handlers import Target, handler_of, perform
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState
from kindling.node.threads import in_thread
from kubecore.json import JsonObject, get_list, get_str

_log = logging.getLogger(__name__)

RecordEvent = Callable[[JsonObject, str, str, str, str], None]
"""Records an event: pod, type, reason, message, container."""


class PodStopper:
    """Stops and removes containers and sandboxes."""

    def __init__(
        self, runtime: Containerd, record_event: RecordEvent, detach: Callable[[str], Awaitable[None]]
    ) -> None:
        """`detach` takes a sandbox, by ID, off its secondary networks."""
        self._runtime = runtime
        self._record_event = record_event
        self._detach = detach

    async def stop_all(
        self, pod: JsonObject, observed: PodRuntimeStatus, grace_seconds: int, message: str
    ) -> None:
        """Stop all containers (sidecars after the others, last one first) and the sandboxes.

        `message`, with the container's name in place of ``{}``, becomes a Killing event each; empty: none.
        """
        deadline = time.monotonic() + grace_seconds
        sidecars = [
            get_str(item, "name")
            for item in reversed(get_list(pod, "spec", "initContainers"))
            if is_restartable(item)
        ]
        running = [item for item in observed.all_containers() if item.state is not ContainerState.EXITED]
        stopped = await asyncio.gather(
            *(
                self._stop_one(pod, item, grace_seconds, message)
                for item in running
                if item.name not in sidecars
            ),
            return_exceptions=True,
        )
        for outcome in stopped:
            if isinstance(outcome, BaseException):
                raise outcome
        for name in sidecars:
            for item in running:
                if item.name == name:
                    left = max(0, int(deadline - time.monotonic()))
                    await self._stop_one(pod, item, min(left, grace_seconds), message)
        for sandbox in observed.sandboxes:
            await self.stop_sandbox(sandbox.id)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox, off its secondary networks first. Raises RuntimeFailure."""
        await self._detach(sandbox_id)
        await self._runtime.stop_sandbox(sandbox_id)

    async def _stop_one(
        self, pod: JsonObject, container: Container, grace_seconds: int, message: str
    ) -> None:
        if message:
            self._record_event(pod, "Normal", "Killing", message.format(container.name), container.name)
        await self.stop_container(pod, container, grace_seconds)

    async def stop_container(self, pod: JsonObject, container: Container, grace_seconds: int) -> None:
        """Run the preStop hook and stop the container, all within the grace period."""
        begun = time.monotonic()
        definition = find_container(pod, container.name)
        hook = handler_of(definition, "lifecycle", "preStop")
        if hook and grace_seconds > 0 and container.state is ContainerState.RUNNING:
            status = (
                await self._runtime.sandbox_status(container.sandbox_id) if container.sandbox_id else None
            )
            address = (status.ips if status else ()) or ("127.0.0.1",)
            target = Target(container.id, definition, address[0])
            try:
                async with asyncio.timeout(grace_seconds):
                    outcome = await perform(self._runtime, hook, target, grace_seconds)
            except TimeoutError:
                _log.warning(
                    "preStop hook of container %s in pod %s did not end within %d s, stopping the container",
                    container.name,
                    identity.display_name(pod),
                    grace_seconds,
                )
            else:
                if not outcome.success:
                    text = f"PreStopHook failed: {outcome.output}"
                    self._record_event(pod, "Warning", "FailedPreStopHook", text, container.name)
        left = max(0, grace_seconds - int(time.monotonic() - begun))
        await self._runtime.stop_container(container.id, left)

    async def remove_all(self, pod: JsonObject, observed: PodRuntimeStatus) -> None:
        """Remove stopped containers, sandboxes and logs."""
        for container in observed.all_containers():
            await self._runtime.remove_container(container.id)
            link = identity.container_log_link(pod, container.name, container.id)
            link.unlink(missing_ok=True)
        for sandbox in observed.sandboxes:
            await self._runtime.remove_sandbox(sandbox.id)
        logs = identity.log_directory(pod)
        await in_thread("remove-logs", lambda check: files.remove_tree(logs, check))
