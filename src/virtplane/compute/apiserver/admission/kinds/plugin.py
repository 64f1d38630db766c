"""Plugins: their expressions must compile, and their sockets be where virt-handler looks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from virtplane.api.durations import parse_duration
from virtplane.api.plugin_v1alpha1.plugin import DomainHook, NodeHook, Plugin, PluginSpec
from virtplane.compute.apiserver.admission.request import Request
from virtplane.compute.plugins import hooks, sockets
from virtplane.serving.responses import Cause, Response

_UNCLEAN = "socketPath must be a clean path (no '..' segments or redundant separators)"
_NO_DOMAIN = "node hooks know no domainSpec; where it is needed, guests do not start"


async def validate_plugin(request: Request) -> Response:
    """Plugins need the gate, expressions that compile, and clean socket paths."""
    request.expect("plugins")
    if request.is_creation and not request.config.gate(hooks.GATE):
        return Response.plain("Plugins feature gate is not enabled")
    spec = request.read(Plugin).spec
    timeouts = [hook.timeout for hook in spec.domain_hooks] + [hook.timeout for hook in spec.node_hooks]
    for timeout in timeouts:
        try:
            parse_duration(timeout or "0")
        except ValueError as error:
            return Response.plain(str(error))
    # Compiling takes as long as expressions are, and the first one loads the parser.
    return await asyncio.to_thread(_judged, spec)


def _judged(spec: PluginSpec) -> Response:
    causes = [*_expressions(spec), *_paths(spec)]
    return _refused(causes) if causes else Response.allow(list(_warnings(spec)))


def _refused(causes: list[Cause]) -> Response:
    """The answer for plugins, which says the first of its causes and has no code."""
    details = {"causes": [cause.document() for cause in causes]}
    return Response(False, {"reason": "Invalid", "message": causes[0].message, "details": details})


def _expressions(spec: PluginSpec) -> Iterator[Cause]:
    # Loading the interpreter takes memory that few installations need.
    from virtplane.compute.plugins import expressions  # noqa: PLC0415

    yield from _condition(expressions.check_domain_condition, spec.condition, "spec.condition")
    for index, hook in enumerate(spec.domain_hooks):
        field = f"spec.domainHooks[{index}]"
        if hook.cel is not None:
            text = hook.cel.expression
            yield from _checked(expressions.check_mutation, text, "mutation", f"{field}.cel.expression")
        yield from _condition(expressions.check_domain_condition, hook.condition, f"{field}.condition")
    for index, each in enumerate(spec.node_hooks):
        field = f"spec.nodeHooks[{index}].condition"
        yield from _condition(expressions.check_node_condition, each.condition, field)


def _condition(check: Callable[[str], None], text: str | None, field: str) -> Iterator[Cause]:
    yield from _checked(check, text or "", "condition", field)


def _checked(check: Callable[[str], None], text: str, what: str, field: str) -> Iterator[Cause]:
    if not text:
        return
    try:
        check(text)
    except ValueError as error:
        yield Cause(f"invalid CEL {what} expression: {error}", field)


def _paths(spec: PluginSpec) -> Iterator[Cause]:
    for index, hook in enumerate(spec.domain_hooks):
        if hook.sidecar is not None and not sockets.is_clean(hook.sidecar.socket_path):
            yield Cause(_UNCLEAN, f"spec.domainHooks[{index}].sidecar.socketPath")


def _warnings(spec: PluginSpec) -> Iterator[str]:
    if spec.node_hooks and spec.condition:
        from virtplane.compute.plugins.expressions import reads_domain  # noqa: PLC0415 - as above

        if reads_domain(spec.condition):
            yield f"spec.condition: {_NO_DOMAIN}"
    for index, hook in enumerate(spec.node_hooks):
        try:
            sockets.node_socket(hook.socket)
        except sockets.SocketError as error:
            yield f"spec.nodeHooks[{index}].socket: {error}"
    named: list[tuple[str, DomainHook | NodeHook]] = [
        *((f"spec.domainHooks[{index}]", hook) for index, hook in enumerate(spec.domain_hooks)),
        *((f"spec.nodeHooks[{index}]", hook) for index, hook in enumerate(spec.node_hooks)),
    ]
    for field, each in named:
        if parse_duration(each.timeout or "0").total_seconds() > hooks.MOST_SECONDS:
            yield f"{field}.timeout: calls end after {hooks.MOST_SECONDS:g} seconds"
