"""Profiles of all components through virt-api, from processes that serve them as they do in pods."""

from __future__ import annotations

import base64
import gzip
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from tests.support.web import serve_app

from kubecore import resources
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.runtime import Health, serve_health
from kubecore.runtime.access import TokenAccess
from kubecore.runtime.health import Guarded
from kubecore.self_signed import self_signed_tls
from kubecore.testing import MemoryApi
from virtplane import profiling
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.subresources.clusterprofiler import ClusterProfiler, health_port
from virtplane.profiling import Profiling

_ACCOUNT = "system:serviceaccount:kubevirt:kubevirt-apiserver"
_PODS = resources.PODS
_PATHS = (profiling.START, profiling.STOP, profiling.DUMP)


@dataclass
class _Installation:
    """Components of one namespace, each with a server, and virt-api's part in front."""

    cluster: MemoryApi
    url: str
    session: aiohttp.ClientSession
    profilers: dict[str, Profiling]
    ports: dict[str, int] = field(default_factory=dict)
    is_profiled: bool = True

    async def ask(self, action: str, body: Any = None) -> tuple[int, Any]:
        data = orjson.dumps(body) if body is not None else None
        async with self.session.get(f"{self.url}/{action}-cluster-profiler", data=data) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return answer.status, orjson.loads(text) if is_json else text


def _reviews(request: Request) -> Response | StatusError | None:
    """The API server's part: a token for an audience, and whose it is."""
    spec = orjson.loads(request.body or b"{}").get("spec", {})
    if request.path == "/api/v1/namespaces/kubevirt/serviceaccounts/kubevirt-apiserver/token":
        status: JsonObject = {"token": f"{_ACCOUNT} {spec['audiences'][0]}"}
    elif request.path.endswith("/tokenreviews"):
        user, _, audience = spec["token"].partition(" ")
        is_meant = audience in spec["audiences"]
        status = {"authenticated": is_meant, "user": {"username": user}, "audiences": [audience]}
    else:
        return None
    return Response(201, {"content-type": "application/json"}, orjson.dumps({"status": status}))


def _pod(name: str, *, ready: str = "True", **labels: str) -> JsonObject:
    component = name.rpartition("-")[0]
    metadata = {"name": name, "namespace": "kubevirt", "labels": {"kubevirt.io": component, **labels}}
    status = {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": ready}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


@pytest.fixture
async def installation() -> AsyncIterator[_Installation]:
    cluster = MemoryApi()
    cluster.reactions.append(_reviews)
    client = cluster.client()
    profilers = {name: Profiling() for name in ("virt-api-1", "virt-controller-1", "virt-handler-1")}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close)
        access = TokenAccess(client, user=_ACCOUNT, audience=profiling.AUDIENCE).status
        session = await stack.enter_async_context(aiohttp.ClientSession())
        made = _Installation(cluster, "", session, profilers)
        for name, profiler in profilers.items():
            await client.create(_PODS, _pod(name))
            stack.callback(profiler.allow, False)
            profiler.allow(True)
            more = Guarded(_PATHS, profiler.answer, access)
            serving = serve_health(Health(), 0, host="127.0.0.1", tls=self_signed_tls("x"), more=more)
            made.ports[name] = await stack.enter_async_context(serving)

        def config() -> ClusterConfig:
            developer = {"clusterProfiler": made.is_profiled}
            configuration = {"developerConfiguration": developer}
            return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": configuration}})

        served = ClusterProfiler(client, "kubevirt", config, lambda pod: made.ports[pod["metadata"]["name"]])
        app = web.Application()
        for action in ("start", "stop", "dump"):
            app.router.add_get(f"/{action}-cluster-profiler", getattr(served, action))
        made.url = f"http://127.0.0.1:{await stack.enter_async_context(serve_app(app))}"
        yield made


async def test_all_components_are_profiled_from_start_to_stop(installation: _Installation) -> None:
    assert await installation.ask("start") == (200, "")
    status, found = await installation.ask("dump")
    assert status == 200 and found["componentResults"].keys() == installation.profilers.keys()
    assert all(each["pprofData"].keys() == {"goroutine.pprof"} for each in found["componentResults"].values())
    assert await installation.ask("stop") == (200, "")
    _, found = await installation.ask("dump")
    for result in found["componentResults"].values():
        assert gzip.decompress(base64.b64decode(result["pprofData"]["cpu.pprof"]))
    assert "continue" not in found


async def test_profiles_come_page_by_page_and_by_labels(installation: _Installation) -> None:
    names = sorted(installation.profilers)
    status, first = await installation.ask("dump", {"pageSize": 2})
    assert (status, sorted(first["componentResults"])) == (200, names[:2])
    _, second = await installation.ask("dump", {"pageSize": 2, "continue": first["continue"]})
    assert (sorted(second["componentResults"]), "continue" in second) == (names[2:], False)
    _, chosen = await installation.ask("dump", {"labelSelector": "kubevirt.io=virt-handler"})
    assert list(chosen["componentResults"]) == ["virt-handler-1"]
    assert await installation.ask("dump", {"labelSelector": "kubevirt.io=none"}) == (204, "")
    status, said = await installation.ask("dump", {"pageSize": "many"})
    assert status == 400 and said.startswith("Can not unmarshal Request body to struct, error: ")


@pytest.mark.parametrize("doing", ["start profiler", "stop profiler", "retrieve profiler data"])
async def test_nothing_is_profiled_where_the_installation_does_not_say_so(
    installation: _Installation, doing: str
) -> None:
    installation.is_profiled = False
    action = {"start": "start", "stop": "stop", "retrieve": "dump"}[doing.split(maxsplit=1)[0]]
    text = f'Unable to {doing}. "ClusterProfiler" feature gate must be enabled'
    assert await installation.ask(action) == (403, text)
    # A component does not rely on virt-api.
    installation.is_profiled = True
    installation.profilers["virt-handler-1"].allow(False)
    status, said = await installation.ask(action)
    assert (status, f"virt-handler-1: 403 {text}" in said) == (500, True)


async def test_pods_that_are_not_ready_or_no_components_are_not_asked(installation: _Installation) -> None:
    client = installation.cluster.client()
    for pod in (_pod("virt-handler-2", ready="False"), _pod("virt-launcher-vm-1")):
        await client.create(_PODS, pod)
    assert await installation.ask("start") == (200, "")
    for name in installation.profilers:
        await client.delete(_PODS, name, "kubevirt")
    await client.close()
    assert (await installation.ask("start"))[0] == 500


async def test_a_component_that_does_not_answer_is_named(installation: _Installation) -> None:
    installation.ports["virt-api-1"] = 1
    status, said = await installation.ask("stop")
    assert status == 500 and "virt-api-1: " in said


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("", 401),
        (f"Bearer {_ACCOUNT} https://kubernetes.default.svc", 401),
        (f"Bearer system:serviceaccount:ns:tenant {profiling.AUDIENCE}", 403),
        (f"Bearer {_ACCOUNT} {profiling.AUDIENCE}", 200),
    ],
)
async def test_nobody_but_virt_api_reaches_a_components_profiler(
    installation: _Installation, authorization: str, status: int
) -> None:
    url = f"https://127.0.0.1:{installation.ports['virt-handler-1']}{profiling.DUMP}"
    headers = {"Authorization": authorization} if authorization else {}
    async with installation.session.get(url, ssl=False, headers=headers) as answer:
        assert answer.status == status


def test_components_are_asked_where_the_kubelet_asks_for_their_health() -> None:
    pod = _pod("virt-operator-1")
    probe = {"httpGet": {"path": "/readyz", "port": 8443, "scheme": "HTTPS"}}
    pod["spec"] = {"containers": [{"name": "virt-operator", "readinessProbe": probe}]}
    assert health_port(pod) == 8443


async def test_a_profiler_that_is_no_longer_allowed_stops() -> None:
    profiler = Profiling()
    profiler.allow(True)
    await profiler.answer(profiling.START)
    assert profiler._profiler.is_running
    profiler.allow(False)
    assert not profiler._profiler.is_running
