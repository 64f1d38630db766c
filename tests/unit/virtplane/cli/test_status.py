"""What ``status`` and ``logs`` say of virtplane's own parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubecore import resources
from kubecore.client import Client
from kubecore.client.transport import Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cli import cluster, logs, main, status
from virtplane.cli.terminal import CommandError

_READY = {"phase": "Deployed", "conditions": [{"type": "Available", "status": "True"}]}


def _api(kubevirt: JsonObject | None = _READY, ready: int = 1) -> MemoryApi:
    """A cluster of two nodes with virtplane on it."""
    api = MemoryApi([kinds.KUBEVIRTS, kinds.VIRTUAL_MACHINES, kinds.CDIS])
    if kubevirt is not None:
        metadata = {"name": "kubevirt", "namespace": "kubevirt"}
        api.put(kinds.KUBEVIRTS, {"metadata": metadata, "status": kubevirt})
    handlers = {"desiredNumberScheduled": 2, "numberReady": ready}
    metadata = {"name": "virt-handler", "namespace": "kubevirt"}
    api.put(resources.DAEMON_SETS, {"metadata": metadata, "status": handlers})
    return api


def _subresources_answer(code: int) -> Any:
    def react(request: Any) -> Response | None:
        if request.path != "/apis/subresources.kubevirt.io/v1":
            return None
        if code >= 400:
            raise StatusError(code=code, reason="", message="the server is currently unable")
        return Response(200, {}, b'{"kind": "APIResourceList", "resources": []}')

    return react


@pytest.mark.parametrize(
    ("kubevirt", "code", "ready", "said"),
    [
        (_READY, 200, 2, ""),
        (None, 200, 2, "it is not installed in namespace kubevirt"),
        ({"phase": "Deploying"}, 200, 2, "its phase is Deploying"),
        (_READY, 503, 2, "the KubeVirt API does not answer: the server is currently unable"),
        (_READY, 200, 1, "virt-handler is ready on 1 of 2 nodes"),
    ],
)
async def test_what_is_not_ready_is_named(
    kubevirt: JsonObject | None, code: int, ready: int, said: str
) -> None:
    api = _api(kubevirt, ready)
    api.reactions.append(_subresources_answer(code))
    async with api.client() as client:
        assert await status.missing_parts(client, "kubevirt") == said


@pytest.mark.parametrize(
    ("manager", "said"),
    [("virtplane-install", "the phase of CDI is Deploying"), ("kubectl-client-side-apply", "")],
)
async def test_data_volumes_are_looked_at_where_they_are_ours(manager: str, said: str) -> None:
    api = _api(_READY, 2)
    metadata = {"name": "cdi", "managedFields": [{"manager": manager}]}
    api.put(kinds.CDIS, {"metadata": metadata, "status": {"phase": "Deploying"}})
    api.reactions.append(_subresources_answer(200))
    async with api.client() as client:
        assert await status.missing_parts(client, "kubevirt") == said


async def test_no_virt_handler_is_expected_on_a_node_that_is_away() -> None:
    api = _api(ready=1)
    api.reactions.append(_subresources_answer(200))
    for name, ready in (("node01", "True"), ("node02", "Unknown")):
        conditions = [{"type": "Ready", "status": ready}]
        api.put(resources.NODES, {"metadata": {"name": name}, "status": {"conditions": conditions}})
    async with api.client() as client:
        assert await status.missing_parts(client, "kubevirt") == ""


@pytest.mark.parametrize(("missing", "code"), [("", 0), ("the KubeVirt API does not answer", 1)])
def test_a_cluster_without_the_api_of_machines_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
    code: int,
    tmp_path: Path,
) -> None:
    async def answer(*_: object) -> str:
        return missing

    monkeypatch.setattr(cluster, "kindling", lambda *_, **__: 0)
    monkeypatch.setattr(status, "missing", answer)
    assert main.main(["status", "--state", str(tmp_path)]) == code
    assert capsys.readouterr().out == f"virtplane   {f'not ready: {missing}' if missing else 'ready'}\n"


async def test_a_server_that_is_gone_is_not_ready(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        '{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [],'
        ' "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}'
    )
    assert (await status.missing(kubeconfig, "kubevirt")).startswith("the API does not answer")


def _pod(api: MemoryApi, name: str, kind: str, phase: str = "Running") -> None:
    metadata = {"name": name, "namespace": "kubevirt", "labels": {"kubevirt.io": kind}}
    api.put(resources.PODS, {"metadata": metadata, "status": {"phase": phase}})


async def _logs(api: MemoryApi, monkeypatch: pytest.MonkeyPatch, component: str, *, follow: bool) -> str:
    asked: list[tuple[str, dict[str, str]]] = []

    async def stream(self: Client, path: str, *, query: dict[str, str]) -> Any:
        asked.append((path, query))
        yield f"line of {path.split('/')[-2]}".encode()

    monkeypatch.setattr(Client, "stream", stream)
    written: list[str] = []
    async with api.client() as client:
        await logs.write_logs(client, "kubevirt", component, written.append, lines=5, follow=follow)
    expected = {"tailLines": "5"} | ({"follow": "true"} if follow else {})
    assert all(query == expected for _, query in asked)
    return "".join(written)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_components_log_is_that_of_its_pods(monkeypatch: pytest.MonkeyPatch, follow: bool) -> None:
    api = MemoryApi()
    _pod(api, "virt-handler-a", "virt-handler")
    _pod(api, "virt-handler-bc", "virt-handler")
    _pod(api, "virt-handler-d", "virt-handler", "Pending")
    shown = await _logs(api, monkeypatch, "virt-handler", follow=follow)
    assert sorted(shown.splitlines()) == [
        "virt-handler-a  line of virt-handler-a",
        "virt-handler-bc line of virt-handler-bc",
    ]


@pytest.mark.parametrize("follow", [False, True])
async def test_a_log_that_breaks_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    async def broken(self: Client, path: str, *, query: dict[str, str]) -> Any:
        yield b"line"
        raise StatusError(code=500, reason="", message="the node is gone")

    api = MemoryApi()
    for name in ("virt-handler-a", "virt-handler-b"):
        _pod(api, name, "virt-handler")
    monkeypatch.setattr(Client, "stream", broken)
    async with api.client() as client:
        with pytest.raises(StatusError, match="the node is gone"):
            await logs.write_logs(client, "kubevirt", "virt-handler", print, lines=1, follow=follow)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_node_that_is_away_keeps_no_log_of_the_others(
    monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    async def stream(self: Client, path: str, *, query: dict[str, str]) -> Any:
        if "virt-handler-a" in path:
            raise StatusError(code=500, reason="", message="the node is gone")
        yield b"line"

    api = MemoryApi()
    for name in ("virt-handler-a", "virt-handler-b"):
        _pod(api, name, "virt-handler")
    monkeypatch.setattr(Client, "stream", stream)
    written: list[str] = []
    async with api.client() as client:
        with pytest.raises(CommandError, match="virt-handler-a: the node is gone"):
            await logs.write_logs(client, "kubevirt", "virt-handler", written.append, lines=1, follow=follow)
    assert written == ["virt-handler-b line\n"]


async def test_in_the_compact_layout_the_operators_log_is_that_of_the_control_plane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi()
    _pod(api, "virt-operator-1", "virt-operator")
    assert await _logs(api, monkeypatch, "virt-api", follow=False) == "line of virt-operator-1\n"
    assert "runs in the process of virt-operator" in capsys.readouterr().err
    with pytest.raises(CommandError, match="no log of virt-handler"):
        await _logs(api, monkeypatch, "virt-handler", follow=False)


def test_logs_without_a_cluster_end_with_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["logs", "--state", str(tmp_path), "virt-api"]) == 1
    assert "There is no cluster." in capsys.readouterr().err
