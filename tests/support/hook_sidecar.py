"""A hook sidecar, served from this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.grpc_sockets import served

from virtplane.compute.handler.hooks import messages

Answer = Callable[[Any], Mapping[str, bytes]]


@contextmanager
def sidecar(
    socket: Path,
    points: Sequence[tuple[str, int]],
    answers: Mapping[str, Answer],
    *,
    name: str = "test",
    versions: Sequence[str] = ("v1alpha3",),
) -> Iterator[None]:
    """Serve at `socket`, asking for `points` (hook and priority); `answers` turn requests into results."""
    info = messages.info()
    known = [version for version in versions if version in messages.VERSIONS]

    def introduce(_request: Any, _context: Any) -> Any:
        hooks = [info.message("HookPoint", {"name": hook, "priority": rank}) for hook, rank in points]
        return info.message("InfoResult", {"name": name, "versions": versions, "hookPoints": hooks})

    handlers = [info.handler("Info", {"Info": introduce})]
    for version in known:
        callbacks = messages.callbacks(version)

        def implemented(hook: str, callbacks: Any = callbacks) -> Callable[[Any, Any], Any]:
            return lambda request, _: callbacks.message(f"{hook}Result", answers[hook](request))

        present = [hook for hook in answers if hook in callbacks.methods["Callbacks"]]
        handlers.append(callbacks.handler("Callbacks", {hook: implemented(hook) for hook in present}))
    with served(socket, handlers):
        yield
