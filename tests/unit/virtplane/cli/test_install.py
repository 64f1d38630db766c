"""Putting the product on a cluster: order, waiting and what is said when it does not work."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cli import install
from virtplane.cli.terminal import CommandError

_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}


def _kubevirt(**status: Any) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "ns"},
        "status": status,
    }


_READY = {"phase": "Deployed", "conditions": [{"type": "Available", "status": "True"}]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_POLL_SECONDS", 0.001)


async def _run(api: MemoryApi, monkeypatch: pytest.MonkeyPatch, *objects: JsonObject, seconds: float) -> None:
    monkeypatch.setattr(install, "install_objects", lambda *_: list(objects))
    monkeypatch.setattr(install, "kubevirt_object", lambda *_, **__: _CONFIG_MAP)
    async with api.client() as client:
        await install.install(
            client, namespace="ns", image="i", layout="compact", use_emulation=True, timeout_seconds=seconds
        )


async def test_objects_are_applied_as_one_manager_and_the_operator_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = MemoryApi([kinds.KUBEVIRTS])
    looks = iter([{"phase": "Deploying"}, {"phase": "Deployed"}, _READY])

    def progress(request: Any) -> JsonObject | None:
        if request.method == "GET" and "/kubevirts/" in request.path:
            api.put(kinds.KUBEVIRTS, _kubevirt(**next(looks)))
        return None

    api.reactions.append(progress)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    applied = [request for request in api.requests if request.method == "PATCH"]
    assert [request.path for request in applied] == ["/api/v1/namespaces/ns/configmaps/c"] * 2
    assert dict(applied[0].query)["fieldManager"] == "virtplane-install"
    assert list(looks) == []
    assert "Waiting for virtplane to be available" in capsys.readouterr().err


async def test_a_webhook_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = MemoryApi([kinds.KUBEVIRTS])
    api.put(kinds.KUBEVIRTS, _kubevirt(**_READY))
    refusals = iter([500, 503, 429])

    def refuse(request: Any) -> None:
        code = next(refusals, 0) if request.method == "PATCH" else 0
        if code:
            raise StatusError(code=code, reason="", message="not yet")

    api.reactions.append(refuse)
    await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert list(refusals) == []


async def test_a_refusal_ends_the_installation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    api = MemoryApi([kinds.KUBEVIRTS])

    def refuse(request: Any) -> None:
        if request.method == "PATCH":
            raise StatusError(code=403, reason="Forbidden", message="you may not")

    api.reactions.append(refuse)
    with pytest.raises(CommandError) as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=10)
    assert failed.value.what == "ConfigMap c could not be applied."
    assert failed.value.why == "you may not"


async def test_a_kind_that_is_never_served_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "g"}}
    with pytest.raises(CommandError) as failed:
        await _run(MemoryApi(), monkeypatch, unknown, seconds=0.02)
    assert failed.value.what == "Gadget g could not be applied."
    assert failed.value.why == "The cluster does not serve this kind."


async def test_an_installation_that_does_not_become_available_shows_its_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = MemoryApi([kinds.KUBEVIRTS])
    condition = {"type": "Available", "status": "False", "message": "virt-api is missing"}
    api.put(kinds.KUBEVIRTS, _kubevirt(phase="Deploying", conditions=[condition]))
    with pytest.raises(CommandError) as failed:
        await _run(api, monkeypatch, _CONFIG_MAP, seconds=0.05)
    assert failed.value.why == "phase Deploying; Available=False: virt-api is missing"
    assert failed.value.do == "Look at: kubectl -n ns get pods,events"


def test_an_unreachable_cluster_is_told_with_the_way_to_one(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = install._parser().parse_args([])
    assert (parsed.namespace, parsed.layout) == ("openshift-cnv", "distributed")
    assert install.main(["--kubeconfig", str(tmp_path / "none")]) == 1
    assert "./virtplane up" in capsys.readouterr().err
