"""The paths of the node's endpoint and their handlers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse

from kindling.node.pods import identity
from kindling.node.pods.container import find_container
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kindling.node.server import log_files, logs, streams, volume_stats
from kindling.node.server.http import HttpProblem, flag
from kindling.node.stats.prometheus import cadvisor_metrics, resource_metrics
from kindling.node.stats.summary import summary
from kindling.node.stats.usage import NodeUsage
from kubecore.json import JsonObject, get_bool, get_list, get_str
from kubecore.objects import times

_PORT = re.compile(r"[0-9]{1,5}")
_METRICS = {"": resource_metrics, "resource": resource_metrics, "cadvisor": cadvisor_metrics}
_PULLING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class RouteServices:
    """What the handlers of the node's endpoint use."""

    runtime: Containerd
    pods: Callable[[], list[JsonObject]]
    runtime_status: Callable[[str], PodRuntimeStatus]
    is_healthy: Callable[[], bool]
    statistics: Callable[[bool], Awaitable[NodeUsage]]
    """The usage of the node and its pods, with that of disks if the argument says so."""
    volumes: Callable[[], Mapping[str, Sequence[JsonObject]]]
    """Statistics of CSI volumes by pod uid, as their drivers told them last."""
    log_files: Path = log_files.ROOT


class Routes:
    """The handler of the node's endpoint."""

    def __init__(self, services: RouteServices) -> None:
        self._services = services

    async def handle(self, request: BaseRequest) -> StreamResponse:
        """Answer one request. Raises HttpProblem."""
        area, *rest = [part for part in request.path.split("/") if part] or [""]
        try:
            return await self._dispatch(area, rest, request)
        except RuntimeFailure as error:
            raise HttpProblem(404 if error.is_not_found else 500, str(error)) from error

    async def _dispatch(self, area: str, rest: list[str], request: BaseRequest) -> StreamResponse:
        if area == "healthz":
            if self._services.is_healthy():
                return Response(body=b"ok", content_type="text/plain")
            raise HttpProblem(500, "unhealthy")
        if area == "pods":
            items = self._services.pods()
            return _json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        if area == "stats" and rest == ["summary"]:
            with_disk = not flag(request, "only_cpu_and_memory")
            document = summary(await self._services.statistics(with_disk))
            volume_stats.add_volumes(document, self._services.volumes())
            return _json(document)
        if area == "metrics" and (render := _METRICS.get("/".join(rest))) is not None:
            text = render(await self._services.statistics(False))
            if not rest:
                text += volume_stats.metrics(self._services.volumes())
            return Response(body=text.encode(), headers={"Content-Type": _METRICS_TYPE})
        if area == "logs":
            return await self._log_files("/".join(rest), request)
        if area == "containerLogs" and len(rest) == 3:
            return await self._logs(rest[0], rest[1], rest[2], request)
        if area in ("exec", "attach") and len(rest) in (3, 4):
            return await self._execute(area, rest[0], rest[1], rest[-1], request)
        if area == "portForward" and len(rest) in (2, 3):
            return await self._forward(rest[0], rest[1], request)
        raise HttpProblem(404, "404 page not found")

    async def _log_files(self, path: str, request: BaseRequest) -> StreamResponse:
        # Here and not in a thread: one that is given up would leave its file open.
        found = log_files.find(path, self._services.log_files)
        if found is None:
            raise HttpProblem(404, "404 page not found")
        if found.descriptor < 0:
            return Response(body=found.page, headers={"Content-Type": "text/html; charset=utf-8"})
        try:
            response = StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
            response.force_close()
            await response.prepare(request)
            async for piece in found.pieces():
                await response.write(piece)
            await response.write_eof()
        finally:
            found.close()
        return response

    def _pod(self, namespace: str, name: str) -> JsonObject:
        for pod in self._services.pods():
            if identity_of(pod) == (namespace, name):
                return pod
        raise HttpProblem(404, f'pod "{name}_{namespace}" not found')

    def _container(self, pod: JsonObject, name: str) -> tuple[Container, ...]:
        observed = self._services.runtime_status(get_str(pod, "metadata", "uid"))
        return observed.containers.get(name, ())

    async def _logs(self, namespace: str, name: str, container: str, request: BaseRequest) -> StreamResponse:
        options = log_options(request)
        pod = self._pod(namespace, name)
        found = self._container(pod, container)
        previous = flag(request, "previous")
        chosen = found[1:2] if previous else found[:1]
        if not chosen:
            raise HttpProblem(400, _without_log(pod, name, container, previous))
        target = chosen[0]
        path = Path(target.log_path) if target.log_path else _log_path(pod, container, target)
        if not path.exists():
            raise HttpProblem(404, f"log of container {container} not found")
        uid = get_str(pod, "metadata", "uid")

        def is_running() -> bool:
            current = self._services.runtime_status(uid).newest(container)
            return current is not None and current.id == target.id and current.state is ContainerState.RUNNING

        response = StreamResponse(headers={"Content-Type": "text/plain"})
        response.force_close()
        await response.prepare(request)
        async for piece in logs.read_log(path, options, is_running):
            await response.write(piece)
        await response.write_eof()
        return response

    async def _execute(
        self, area: str, namespace: str, name: str, container: str, request: BaseRequest
    ) -> StreamResponse:
        pod = self._pod(namespace, name)
        found = self._container(pod, container)
        if not found or found[0].state is not ContainerState.RUNNING:
            raise HttpProblem(404, f'container not found ("{container}")')
        if not streams.wants_upgrade(request):
            raise HttpProblem(400, "Upgrade request required")
        if streams.offers_only_v5(request):
            raise HttpProblem(400, "the container runtime does not speak v5.channel.k8s.io; use SPDY/3.1")
        definition = find_container(pod, container)
        tty = flag(request, "tty") if area == "exec" else get_bool(definition, "tty")
        wanted = {
            "tty": tty,
            "stdin": flag(request, "input", "stdin"),
            "stdout": flag(request, "output", "stdout"),
            "stderr": flag(request, "error", "stderr") and not tty,
        }
        if area == "exec":
            url = await self._services.runtime.exec_url(
                found[0].id, request.query.getall("command", []), wanted
            )
        else:
            url = await self._services.runtime.attach_url(found[0].id, wanted)
        return await streams.proxy_stream(request, url)

    async def _forward(self, namespace: str, name: str, request: BaseRequest) -> StreamResponse:
        pod = self._pod(namespace, name)
        sandbox = self._services.runtime_status(get_str(pod, "metadata", "uid")).sandbox
        if sandbox is None or not sandbox.ready:
            raise HttpProblem(404, f"pod {name} has no running sandbox")
        if not streams.wants_upgrade(request):
            raise HttpProblem(400, "Upgrade request required")
        url = await self._services.runtime.port_forward_url(sandbox.id, forwarded_ports(request))
        if streams.is_tunnel(request):
            return await streams.tunnel(request, url)
        return await streams.proxy_stream(request, url)


def identity_of(pod: JsonObject) -> tuple[str, str]:
    """(namespace, name)"""
    return get_str(pod, "metadata", "namespace"), get_str(pod, "metadata", "name")


def forwarded_ports(request: BaseRequest) -> list[int]:
    """The ports that a request to forward ports names. Raises HttpProblem."""
    listed = [part for value in request.query.getall("port", []) for part in value.split(",")]
    if any(_PORT.fullmatch(part) is None or not 0 < int(part) < 65536 for part in listed):
        raise HttpProblem(400, "a port is not a number from 1 to 65535")
    return [int(part) for part in listed]


def log_options(request: BaseRequest) -> logs.LogOptions:
    """PodLogOptions from a query. Raises HttpProblem."""
    try:
        tail = request.query.get("tailLines")
        limit = request.query.get("limitBytes")
        since = request.query.get("sinceTime", "")
        seconds = request.query.get("sinceSeconds")
        if seconds:
            since = times.format_time(datetime.now(UTC) - timedelta(seconds=int(seconds)))
        return logs.LogOptions(
            follow=flag(request, "follow"),
            tail_lines=int(tail) if tail else None,
            since=since,
            timestamps=flag(request, "timestamps"),
            limit_bytes=int(limit) if limit else None,
            stream=request.query.get("stream", "All"),
        )
    except (ValueError, OverflowError) as error:
        raise HttpProblem(400, f"invalid log options: {error}") from error


def _json(document: JsonObject) -> Response:
    return Response(body=orjson.dumps(document), content_type="application/json")


def _log_path(pod: JsonObject, container: str, found: Container) -> Path:
    restarts = found.annotations.get(identity.ANNOTATION_RESTARTS, str(found.attempt))
    return identity.log_directory(pod) / container / f"{restarts}.log"


def _without_log(pod: JsonObject, name: str, container: str, previous: bool) -> str:
    """Why there is no log: the kubelet's words."""
    if previous:
        return f'previous terminated container "{container}" in pod "{name}" not found'
    reason = _waiting_reason(pod, container)
    if not reason:
        return f'container "{container}" in pod "{name}" not found'
    return f'container "{container}" in pod "{name}" is waiting to start: {_PULLING.get(reason, reason)}'


def _waiting_reason(pod: JsonObject, container: str) -> str:
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for status in get_list(pod, "status", kind):
            if status.get("name") == container:
                return get_str(status, "state", "waiting", "reason")
    return ""
