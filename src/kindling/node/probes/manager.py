"""One task per probe of each running container; their results for the pod workers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kindling.node.pods.runtime_status import ProbeResult, ProbeResults
from kindling.node.probes.handlers import Outcome, Target, perform
from kindling.node.probes.host_names import HostNames
from kindling.node.runtime.containerd import Containerd
from kubecore.json import JsonObject, get_int, get_object, get_str

_log = logging.getLogger(__name__)

_KINDS = ("startup", "readiness", "liveness")


@dataclass(frozen=True, slots=True)
class Listener:
    """The callbacks of the pod workers: `wake` when a result changed, `unhealthy` with the text of each
    failure.
    """

    wake: Callable[[], None]
    unhealthy: Callable[[str, str], None]
    """container name, message"""


@dataclass
class _Watched:
    container_id: str
    probe_results: ProbeResults
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)


class ProbeManager:
    """Probes of all containers of a node, keyed by container id."""

    def __init__(self, runtime: Containerd) -> None:
        self._runtime = runtime
        self._watched: dict[str, _Watched] = {}
        self._names = HostNames()

    def probe_results(self, container_id: str) -> ProbeResults:
        """The results of a container's probes; empty without probes."""
        watched = self._watched.get(container_id)
        return watched.probe_results if watched else ProbeResults()

    def watch(self, target: Target, listener: Listener, *, was_started: bool, was_ready: bool) -> None:
        """Probe a running container from now on; watching twice changes nothing.

        `was_started` and `was_ready` carry over what the API says of a container adopted after a restart.
        """
        if target.container_id in self._watched:
            return
        probes = {kind: get_object(target.container, f"{kind}Probe") for kind in _KINDS}
        startup = ProbeResult.SUCCESS if was_started else ProbeResult.UNKNOWN
        readiness = ProbeResult.SUCCESS if was_ready else ProbeResult.UNKNOWN
        watched = _Watched(
            target.container_id,
            ProbeResults(
                startup=startup if probes["startup"] else None,
                readiness=readiness if probes["readiness"] else None,
                liveness=ProbeResult.UNKNOWN if probes["liveness"] else None,
            ),
        )
        self._watched[target.container_id] = watched
        if watched.probe_results.has_started:
            watched.started.set()
        for kind, probe in probes.items():
            if probe and not (kind == "startup" and was_started):
                name = f"probe-{kind}-{get_str(target.container, 'name')}"
                task = asyncio.create_task(self._run(kind, probe, target, watched, listener), name=name)
                watched.tasks.append(task)

    def forget(self, container_id: str) -> None:
        """Stop probing a container."""
        watched = self._watched.pop(container_id, None)
        for task in watched.tasks if watched else ():
            task.cancel()

    def stop_liveness(self, container_id: str) -> None:
        """Stop startup and liveness probes of a container that is being stopped; readiness goes on."""
        watched = self._watched.get(container_id)
        for task in watched.tasks if watched else ():
            if not task.get_name().startswith("probe-readiness-"):
                task.cancel()

    async def close(self) -> None:
        """Stop all probes."""
        tasks = [task for watched in self._watched.values() for task in watched.tasks]
        for container_id in list(self._watched):
            self.forget(container_id)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, kind: str, probe: JsonObject, target: Target, watched: _Watched, listener: Listener
    ) -> None:
        if kind != "startup":
            await watched.started.wait()
        period = get_int(probe, "periodSeconds", default=10)
        await asyncio.sleep(get_int(probe, "initialDelaySeconds") or random.uniform(0, min(0.2, period)))
        counter = 0
        last: bool | None = None
        while True:
            outcome = await self._outcome(kind, probe, target)
            counter = counter + 1 if outcome.success == last else 1
            last = outcome.success
            if not outcome.success:
                name = get_str(target.container, "name")
                listener.unhealthy(name, f"{kind.capitalize()} probe failed: {outcome.output}")
            self._judge(kind, probe, outcome, counter, watched, listener)
            if kind == "startup" and watched.started.is_set():
                return
            await asyncio.sleep(period)

    async def _outcome(self, kind: str, probe: JsonObject, target: Target) -> Outcome:
        """Run a probe once. Any exception that the answer causes counts as a failed probe."""
        try:
            seconds = get_int(probe, "timeoutSeconds", default=1)
            return await perform(self._runtime, probe, target, seconds, self._names)
        except Exception as error:
            name = get_str(target.container, "name")
            _log.exception("%s probe of container %s (%s) counts as failed", kind, name, target.container_id)
            return Outcome(False, f"{type(error).__name__}: {error}")

    def _judge(
        self,
        kind: str,
        probe: JsonObject,
        outcome: Outcome,
        counter: int,
        watched: _Watched,
        listener: Listener,
    ) -> None:
        threshold = get_int(probe, "successThreshold", default=1)
        if not outcome.success:
            threshold = get_int(probe, "failureThreshold", default=3)
        if counter < threshold:
            return
        result = ProbeResult.SUCCESS if outcome.success else ProbeResult.FAILURE
        before = watched.probe_results
        if kind == "startup":
            watched.probe_results = replace(before, startup=result)
            if outcome.success:
                watched.started.set()
        elif kind == "readiness":
            watched.probe_results = replace(before, readiness=result)
        else:
            watched.probe_results = replace(before, liveness=result)
        if watched.probe_results != before:
            listener.wake()
