"""The worker of one pod: syncs the pod with its API object for as long as it exists.

Each sync reads the runtime status, computes the actions (`pod_actions`), carries them out and publishes the
status. A worker starts from what the runtime has, so a restarted agent carries on where the last one stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator

from kindling.node.pods import ending, identity, status
from kindling.node.pods.admission import refusal
from kindling.node.pods.api_status import reports_running
from kindling.node.pods.conditions import StatusInputs
from kindling.node.pods.ending import Ending
from kindling.node.pods.pod_actions import PodActions, SandboxAction, compute_pod_actions
from kindling.node.pods.pod_services import PodServices
from kindling.node.pods.probing import PodProbing
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus, Waiting
from kindling.node.pods.starter import PodSession, StartFailure
from kindling.node.probes.manager import Listener
from kindling.node.runtime.interface import ContainerState, RuntimeFailure
from kindling.node.volumes.manager import VolumeProblem
from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects import times

_log = logging.getLogger(__name__)

_FINAL = ("Succeeded", "Failed")
_REFRESH_SECONDS = 30.0
_FIRST_RETRY = 0.5
_MAX_RETRY = 15.0


class PodWorker:
    """Runs one pod until nothing of it is left."""

    def __init__(self, pod: JsonObject, services: PodServices) -> None:
        self.pod = pod
        self.uid = get_str(pod, "metadata", "uid")
        self._services = services
        self._wake = asyncio.Event()
        self._session = PodSession(pod)
        self._step: asyncio.Task[float | None] | None = None
        self._publishing = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._published = 0
        self._failures = 0
        self._mount_failures = 0
        self._gone = False
        self._ended = False
        self._ending = ending.begun(pod)
        self._was_admitted = False
        self._refreshed = time.monotonic()
        self._resized: frozenset[str] = frozenset()
        listener = Listener(self.wake, lambda name, text: self._event("Warning", "Unhealthy", text, name))
        self._probing = PodProbing(services.probes, services.node, listener)

    @property
    def granted_pod(self) -> JsonObject:
        """The pod with the resources that the node has granted it."""
        return self._services.resizer.view(self.pod)

    def update(self, pod: JsonObject) -> None:
        """Take over a changed API object."""
        was_ending = self._is_ending()
        grace = self._grace()
        self.pod = pod
        self._session.pod = self.granted_pod
        if self._is_ending() and not was_ending:
            # Interrupt waits (for an image, a hook): the new object may not need them any more.
            self._interrupt()
        elif was_ending and self._grace() < grace:
            self._interrupt()
        self._wake.set()

    def wake(self) -> None:
        """Sync soon: the pod changed in the runtime."""
        self._wake.set()

    def object_deleted(self) -> None:
        """Terminate the pod and remove everything: its API object was deleted."""
        if not self._gone:
            self._gone = True
            self._interrupt()
            self._wake.set()

    def evict(self, wanted: Ending) -> bool:
        """Terminate the pod with phase Failed, unless it is ending anyway."""
        if self._is_ending():
            return False
        self._ending = wanted
        self._interrupt()
        self._wake.set()
        return True

    @property
    def is_admitted(self) -> bool:
        """Whether the pod was admitted and has not ended. Pods that ran before the agent restarted were."""
        phase = get_str(self.pod, "status", "phase")
        if self._gone or self._ended or phase in _FINAL:
            return False
        return self._was_admitted or phase == "Running" or self._observed.sandbox is not None

    def _admit(self) -> bool:
        """Admit the pod beside those that run, or fail it."""
        self._was_admitted = self.is_admitted
        if not self._was_admitted:
            found = refusal(
                self.pod,
                self._services.admitted(),
                self._services.node().allocatable,
                self._services.pressure(),
            )
            found = found or self._services.reserve(self.pod)
            if found is not None:
                self._event("Warning", found.reason, found.message)
                self._ending = Ending(found.reason, found.status_message)
            self._was_admitted = found is None
        return self._was_admitted

    async def run(self) -> None:
        """Sync the pod until nothing is left of it."""
        while True:
            self._wake.clear()
            delay = await self._guarded_step()
            if delay is None and self._gone:
                return
            if delay == 0:
                continue
            try:
                await asyncio.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                continue

    def _interrupt(self) -> None:
        if self._step is not None:
            self._step.cancel()

    async def _guarded_step(self) -> float | None:
        """Sync once; returns the seconds until the next sync, 0 for now, None to wait for a change."""
        self._step = asyncio.create_task(self._sync_once(), name=f"pod-{identity.display_name(self.pod)}")
        try:
            delay = await self._step
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                self._step.cancel()
                raise
            return 0
        except (RuntimeFailure, StatusError, ConnectionFailed, OSError) as error:
            self._failures += 1
            delay = float(min(_MAX_RETRY, _FIRST_RETRY * 2 ** min(self._failures, 10)))
            name = identity.display_name(self.pod)
            _log.warning("syncing pod %s failed, trying again in %g s: %s", name, delay, error)
            if isinstance(error, RuntimeFailure):
                await self._relist()
            return delay
        finally:
            self._step = None
        self._failures = 0
        return delay

    async def _relist(self) -> None:
        try:
            await self._services.pleg.relist()
        except RuntimeFailure as error:
            _log.debug("relisting failed as well: %s", error)

    async def _sync_once(self) -> float | None:
        if self._gone:
            await self._remove_everything()
            return None
        if self._is_ending():
            return await self._terminate()
        return await self._sync()

    def _is_ending(self) -> bool:
        if self._ending is None:
            self._ending = ending.overdue(self.pod)
        deleted = bool(get_object(self.pod, "metadata").get("deletionTimestamp"))
        final = get_str(self.pod, "status", "phase") in _FINAL
        return deleted or final or self._ending is not None

    def _grace(self) -> int:
        return ending.grace_seconds(self.pod, self._ending)

    @property
    def _observed(self) -> PodRuntimeStatus:
        return self._services.pleg.runtime_status(self.uid)

    async def _sync(self) -> float | None:
        """Sync the pod with its API object once."""
        if not self._admit():
            return 0
        observed = self._observed
        self._probing.watch(self.pod, observed, self._session.starting)
        self._services.resizer.decide(self.pod)
        self._resized = await self._services.resizer.actuate(self.pod, observed)
        self._session.pod = self.granted_pod
        actions = compute_pod_actions(self.pod, observed, self._local_state(observed))
        async with self._publishing_meanwhile():
            return await self._apply(actions, observed)

    async def _apply(self, actions: PodActions, observed: PodRuntimeStatus) -> float:
        if actions.sandbox is SandboxAction.KILL:
            await self._services.stopper.stop_all(self.pod, observed, self._grace(), "")
            await self._services.pleg.relist()
            self._ended = True
            await self._publish()
            # The published final phase makes the next sync terminate the pod.
            return 0 if self._ending is not None else 1.0
        if actions.sandbox is SandboxAction.CREATE:
            return await self._create_sandbox(actions, observed)
        networks_delay = await self._services.networks.sync(self.pod, observed)
        acted, delay = await self._act(actions, observed)
        if acted:
            await self._services.pleg.relist()
            return 0
        await self._publish()
        return min(delay, networks_delay, await self._refresh())

    async def _create_sandbox(self, actions: PodActions, observed: PodRuntimeStatus) -> float:
        if observed.sandbox is not None:
            self._event("Normal", "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
            await self._services.stopper.stop_all(self.pod, observed, 0, "")
        if not await self._prepare_volumes():
            delay = float(min(_MAX_RETRY, _FIRST_RETRY * 2 ** min(self._mount_failures, 5)))
            self._mount_failures += 1
            return delay
        self._mount_failures = 0
        try:
            await self._services.networks.check(self.pod)
            await self._services.starter.create_sandbox(self._session, actions.attempt)
        except RuntimeFailure as error:
            self._event(
                "Warning", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {error.rpc_text}"
            )
            raise
        for old in observed.sandboxes:
            await self._services.stopper.stop_sandbox(old.id)
        await self._services.pleg.relist()
        return 0

    async def _prepare_volumes(self) -> bool:
        """Set up the pod's volumes; False, with an event, when one of them fails."""
        try:
            self._session.volumes_prepared(await self._services.volumes.prepare(self.pod))
        except VolumeProblem as problem:
            self._session.volume_failed(problem)
            for name in sorted(self._session.without_image):
                self._event("Warning", "Failed", f"Error: {problem.waiting_reason}", name)
            if not problem.waiting_reason:
                self._event("Warning", problem.event_reason, problem.event_message)
            await self._publish()
            return False
        return True

    async def _act(self, actions: PodActions, observed: PodRuntimeStatus) -> tuple[bool, float]:
        """Kill and start containers; returns whether it did any, and the seconds until the next sync."""
        acted = False
        delay = _REFRESH_SECONDS
        for kill in actions.kill:
            self._event("Normal", "Killing", kill.message, kill.container.name)
            self._services.probes.forget(kill.container.id)
            await self._services.stopper.stop_container(self.pod, kill.container, self._grace())
            acted = True
        if actions.start and not self._session.prepared and not await self._prepare_volumes():
            return acted, 5.0
        for name in actions.start:
            try:
                self._services.resizer.starting(self.pod, name)
                await self._services.starter.start(self._session, observed, name)
                acted = True
            except StartFailure as failure:
                self._session.waiting[name] = Waiting(failure.reason, str(failure))
                delay = min(delay, failure.retry_seconds)
                acted = acted or failure.created
        return acted, delay

    async def _refresh(self) -> float:
        """Update config map, secret and projected volumes once in a while."""
        now = time.monotonic()
        if now - self._refreshed >= _REFRESH_SECONDS:
            self._refreshed = now
            await self._services.volumes.refresh(self.pod)
        return _REFRESH_SECONDS - (now - self._refreshed)

    def _local_state(self, observed: PodRuntimeStatus) -> LocalState:
        for name in list(self._session.waiting):
            current = observed.current(name)
            if current is not None and current.state is ContainerState.RUNNING:
                del self._session.waiting[name]
        probe_results = {
            item.id: self._services.probes.probe_results(item.id) for item in observed.all_containers()
        }
        return LocalState(
            dict(self._session.waiting),
            probe_results,
            frozenset(self._session.starting),
            self._resized,
            self._services.resizer.actuated(self.uid),
            self._services.resizer.conditions(self.uid),
        )

    @contextlib.asynccontextmanager
    async def _publishing_meanwhile(self) -> AsyncIterator[None]:
        """Publish the present status while the body acts on it.

        Containers start without waiting for the API, also while it cannot be reached. A failure to publish
        fails the sync afterwards.
        """
        name = f"status-{identity.display_name(self.pod)}"
        telling = asyncio.create_task(self._publish_numbered(self._status(), next(self._numbers)), name=name)
        try:
            yield
        except BaseException as error:
            if isinstance(error, RuntimeFailure):
                # A pod that cannot start is to be seen as waiting, even if it fails at once and again.
                await asyncio.wait([telling], timeout=2.0)
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
            raise
        await telling

    async def _publish(self, *, stopped: bool = False) -> None:
        await self._publish_numbered(self._status(stopped=stopped), next(self._numbers))

    async def _publish_numbered(self, seen: JsonObject, number: int) -> None:
        """Publish the status that was made as the `number`-th, unless a later one was published."""
        async with self._publishing:
            if number > self._published:
                self._published = number
                await self._services.status_manager.publish(self.pod, seen)

    def _status(self, *, stopped: bool = False) -> JsonObject:
        observed = self._observed
        inputs = StatusInputs(
            observed,
            self._local_state(observed),
            self._services.node(),
            times.now_rfc3339(),
            ending=stopped,
            reason=self._ending.reason if self._ending is not None else "",
            message=self._ending.message if self._ending is not None else "",
            disruption=self._ending.disruption if self._ending is not None else "",
        )
        return status.pod_status(self.granted_pod, inputs)

    async def _terminate(self) -> float | None:
        """Stop the pod for good; confirm its deletion when it is being deleted."""
        observed = self._observed
        deleting = bool(get_object(self.pod, "metadata").get("deletionTimestamp"))
        if observed.has_running or (observed.sandbox is not None and observed.sandbox.ready):
            for item in observed.all_containers():
                self._services.probes.stop_liveness(item.id)
            await self._publish()
            await self._services.stopper.stop_all(self.pod, observed, self._grace(), "Stopping container {}")
            await self._services.pleg.relist()
        for item in self._observed.all_containers():
            self._services.probes.forget(item.id)
        final = get_str(self.pod, "status", "phase") in _FINAL
        if not final or (not self._ended and reports_running(self.pod)):
            await self._publish(stopped=True)
        self._ended = True
        await self._services.volumes.clean_up(self.uid)
        await self._services.release(self.uid)
        if deleting:
            await self._services.status_manager.confirm_deletion(self.pod)
        return None

    async def _remove_everything(self) -> None:
        """Stop and remove all containers, sandboxes, volumes and logs of the pod."""
        observed = self._observed
        for item in observed.all_containers():
            self._services.probes.forget(item.id)
        await self._services.stopper.stop_all(self.pod, observed, 0, "")
        await self._services.stopper.remove_all(self.pod, observed)
        await self._services.volumes.clean_up(self.uid)
        await self._services.release(self.uid)
        self._services.starter.forget(self.uid)
        self._services.status_manager.forget(self.uid)
        await self._services.pleg.relist()

    def _event(self, kind: str, reason: str, message: str, container: str = "") -> None:
        where = identity.field_path(self.pod, container) if container else ""
        subject = {"apiVersion": "v1", "kind": "Pod", **self.pod}
        self._services.recorder.event(
            subject, "Warning" if kind == "Warning" else "Normal", reason, message, where
        )
