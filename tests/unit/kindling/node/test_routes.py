"""What the node's endpoint answers, path by path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.kindling.node.conftest import Pki
from tests.unit.kindling.node.test_statistics import usage

from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kindling.node.server.routes import Routes, RouteServices
from kindling.node.stats.prometheus import cadvisor_metrics, resource_metrics
from kindling.node.stats.summary import summary
from kindling.node.stats.usage import NodeUsage
from kubecore.json import JsonObject

POD = {
    "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
    "status": {
        "initContainerStatuses": [{"name": "pulled", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
        "containerStatuses": [{"name": "later", "state": {"waiting": {"reason": "PodInitializing"}}}],
    },
}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOG = b"2026-01-01T00:00:00.1Z stdout F one\n2026-01-01T00:00:01.2Z stdout F two\n"


class RefusingRuntime:
    async def exec_url(self, container_id: str, command: list[str], wanted: JsonObject) -> str:
        raise RuntimeFailure(f"{container_id}: {command} {wanted}", "NOT_FOUND")


_VOLUME = {"name": "v", "pvcRef": {"namespace": "n", "name": "data"}, "usedBytes": 7}


_OF_VOLUMES = """\
# TYPE kubelet_volume_stats_used_bytes gauge
kubelet_volume_stats_used_bytes{namespace="n",persistentvolumeclaim="data"} 7
"""


def _with_volumes(document: dict[str, Any]) -> dict[str, Any]:
    for pod in document["pods"]:
        if pod["podRef"]["uid"] == "u":
            pod["volume"] = [*pod.get("volume", ()), _VOLUME]
    return document


@asynccontextmanager
async def routes(pki: Pki, log: Path, *, healthy: bool = True) -> AsyncIterator[int]:
    container = Container("id", "sandbox", "c", 0, ContainerState.RUNNING, 1, log_path=str(log))

    async def statistics(with_disk: bool) -> NodeUsage:
        return usage(with_disk=with_disk)

    runtime: Any = RefusingRuntime()
    services = RouteServices(
        runtime=runtime,
        pods=lambda: [POD],
        runtime_status=lambda uid: PodRuntimeStatus(containers={"c": (container,)} if uid == "u" else {}),
        is_healthy=lambda: healthy,
        statistics=statistics,
        volumes=lambda: {"u": [_VOLUME]},
        log_files=log.parent,
    )
    async with pki.serving(Routes(services).handle) as port:
        yield port


async def get(pki: Pki, port: int, path: str, extra: str = "") -> tuple[bytes, bytes]:
    reader, writer = await pki.connect(port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: n\r\n{extra}\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head, body


@pytest.mark.parametrize(
    ("path", "status", "kind", "body"),
    [
        ("/healthz", 200, "text/plain", b"ok"),
        ("/stats/summary", 200, "application/json", orjson.dumps(_with_volumes(summary(usage())))),
        (
            "/stats/summary?only_cpu_and_memory=true",
            200,
            "application/json",
            orjson.dumps(_with_volumes(summary(usage(with_disk=False)))),
        ),
        ("/metrics", 200, METRICS_TYPE, (resource_metrics(usage()) + _OF_VOLUMES).encode()),
        ("/metrics/resource", 200, METRICS_TYPE, resource_metrics(usage()).encode()),
        ("/metrics/cadvisor", 200, METRICS_TYPE, cadvisor_metrics(usage()).encode()),
        ("/metrics/other", 404, "text/plain", b"404 page not found"),
        ("/stats", 404, "text/plain", b"404 page not found"),
        ("/", 404, "text/plain", b"404 page not found"),
        ("/containerLogs/ns/q/c", 404, "text/plain", b'pod "q_ns" not found'),
        ("/containerLogs/ns/p/d", 400, "text/plain", b'container "d" in pod "p" not found'),
        (
            "/containerLogs/ns/p/later",
            400,
            "text/plain",
            b'container "later" in pod "p" is waiting to start: PodInitializing',
        ),
        (
            "/containerLogs/ns/p/pulled",
            400,
            "text/plain",
            b'container "pulled" in pod "p" is waiting to start: trying and failing to pull image',
        ),
        ("/exec/ns/p/d", 404, "text/plain", b'container not found ("d")'),
        ("/exec/ns/p/c", 400, "text/plain", b"Upgrade request required"),
        ("/portForward/ns/p", 404, "text/plain", b"pod p has no running sandbox"),
    ],
)
async def test_paths_are_answered(
    pki: Pki, tmp_path: Path, path: str, status: int, kind: str, body: bytes
) -> None:
    async with routes(pki, tmp_path / "none") as port:
        head, found = await get(pki, port, path)
    lines = head.decode().split("\r\n")
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    assert f"Content-Type: {kind}" in lines
    assert found == body


async def test_pods_are_listed(pki: Pki, tmp_path: Path) -> None:
    async with routes(pki, tmp_path / "none") as port:
        _, body = await get(pki, port, "/pods/")
    assert body.startswith(b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":')


async def test_a_node_that_is_not_healthy_says_so(pki: Pki, tmp_path: Path) -> None:
    async with routes(pki, tmp_path / "none", healthy=False) as port:
        head, body = await get(pki, port, "/healthz")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert body == b"unhealthy"


async def test_logs_are_sent_in_chunks_until_their_end(pki: Pki, tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LOG)
    async with routes(pki, log) as port:
        head, body = await get(pki, port, "/containerLogs/ns/p/c")
        assert b"Transfer-Encoding: chunked" in head
        assert b"Content-Type: text/plain\r\n" in head
        assert body == b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n"
        _, body = await get(pki, port, "/containerLogs/ns/p/c?tailLines=1")
        assert body == b"4\r\ntwo\n\r\n0\r\n\r\n"


async def test_a_log_is_followed_as_it_grows(pki: Pki, tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LOG)
    async with routes(pki, log) as port:
        reader, writer = await pki.connect(port)
        writer.write(b"GET /containerLogs/ns/p/c?follow=true HTTP/1.1\r\nHost: n\r\n\r\n")
        await reader.readuntil(b"two\n")
        with log.open("ab") as stream:
            stream.write(b"2026-01-01T00:00:02.2Z stdout F three\n")
        await reader.readuntil(b"three\n")
        writer.close()


async def test_log_options_that_are_no_numbers_are_refused_before_anything_is_sent(
    pki: Pki, tmp_path: Path
) -> None:
    log = tmp_path / "0.log"
    log.write_bytes(LOG)
    async with routes(pki, log) as port:
        head, body = await get(pki, port, "/containerLogs/ns/p/c?tailLines=x")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert body.startswith(b"invalid log options")


async def test_what_the_runtime_does_not_find_is_not_found(pki: Pki, tmp_path: Path) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    async with routes(pki, tmp_path / "none") as port:
        head, body = await get(pki, port, "/exec/ns/p/c?command=a&command=b&output=1", upgrade)
    assert head.startswith(b"HTTP/1.1 404 ")
    assert b"id: ['a', 'b'] {'tty': False, 'stdin': False, 'stdout': True, 'stderr': False}" in body
