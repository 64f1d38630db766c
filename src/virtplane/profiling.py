"""The profiler of a process of components, which virt-api starts, stops and asks for its profile."""

from __future__ import annotations

import asyncio
import base64

import orjson

from kubecore.runtime.health import Answer
from kubecore.runtime.profiler import Profiler

START, STOP, DUMP = "/start-profiler", "/stop-profiler", "/dump-profiler"
"""The paths of a component, beside its health."""
AUDIENCE = "kubevirt-profiler"
"""What the tokens are for that virt-api shows: they open nothing else."""
_DOES = {START: "start profiler", STOP: "stop profiler", DUMP: "retrieve profiler data"}


def refusal(path: str) -> str:
    """What is said where the installation does not let itself be profiled."""
    return f'Unable to {_DOES[path]}. "ClusterProfiler" feature gate must be enabled'


class Profiling:
    """Answers for the profiler of this process, while the installation allows it."""

    def __init__(self) -> None:
        self._profiler = Profiler()
        self._is_allowed = False

    def allow(self, is_allowed: bool) -> None:
        """Take over what the installation says; what runs ends where it is no longer allowed."""
        if self._is_allowed and not is_allowed:
            self._profiler.stop()
        self._is_allowed = is_allowed

    async def answer(self, path: str) -> Answer:
        """The answer to a request for one of the paths."""
        if not self._is_allowed:
            return Answer(403, refusal(path))
        if path == START:
            self._profiler.start()
        elif path == STOP:
            self._profiler.stop()
        else:
            return await self._dump()
        return Answer(200)

    async def _dump(self) -> Answer:
        files = {"goroutine.pprof": self._profiler.standing()}
        if self._profiler.has_ended:
            files["cpu.pprof"] = await asyncio.to_thread(self._profiler.profile)
        encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
        return Answer(200, orjson.dumps({"pprofData": encoded}).decode(), "application/json; charset=utf-8")
