"""Who asks virt-api, and for what."""

from __future__ import annotations

import pytest
from yarl import URL

from virtplane.api import resources as kinds
from virtplane.compute.apiserver import authorization
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgentError, NodeAgents
from virtplane.serving import frontproxy
from virtplane.serving.frontproxy import ProxySettings, User

from .conftest import VirtApi

_BASE = "/apis/subresources.kubevirt.io/v1"
_NS = f"{_BASE}/namespaces/ns"


def test_the_front_proxy_names_the_user() -> None:
    headers = [
        ("X-Remote-User", "ann"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Scopes", "s"),
    ]
    expected = User("ann", ("a", "b"), {"scopes": ("s",)})
    assert frontproxy.user_of(headers, ProxySettings()) == expected
    assert frontproxy.user_of([], ProxySettings()) is None


def test_settings_come_from_the_cluster() -> None:
    data = {
        "requestheader-client-ca-file": "PEM",
        "requestheader-allowed-names": '["proxy"]',
        "requestheader-username-headers": '["X-User"]',
    }
    settings = ProxySettings.of({"data": data})
    assert settings.allowed_names == {"proxy"}
    assert settings.user_headers == ("X-User",)
    assert settings.group_headers == ("X-Remote-Group",)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PUT", f"{_NS}/virtualmachines/vm/start", ("update", "virtualmachines", "vm", "start")),
        (
            "GET",
            f"{_NS}/virtualmachineinstances/i/vnc/screenshot",
            ("get", "virtualmachineinstances", "i", "vnc/screenshot"),
        ),
        (
            "GET",
            f"{_NS}/virtualmachines/vm/portforward/22/tcp",
            ("get", "virtualmachines", "vm", "portforward"),
        ),
        ("PUT", f"{_NS}/expand-vm-spec", ("update", "expand-vm-spec", None, None)),
        ("GET", f"{_BASE}/dump-cluster-profiler", ("get", "dump-cluster-profiler", None, None)),
    ],
)
def test_a_path_asks_for_a_right(method: str, path: str, expected: tuple[str | None, ...]) -> None:
    found = authorization.attributes(method, path) or {}
    assert (found["verb"], found["resource"], found.get("name"), found.get("subresource")) == expected


def test_discovery_is_open_and_the_rest_is_not() -> None:
    assert authorization.is_open(f"{_BASE}/version")
    assert authorization.is_open("/openapi/v3/apis/subresources.kubevirt.io/v1")
    assert not authorization.is_open(f"{_NS}/virtualmachines/vm/start")
    assert not any(
        authorization.is_open(f"{_BASE}/{verb}-cluster-profiler") for verb in ("start", "stop", "dump")
    )
    assert authorization.attributes("GET", "/apis/subresources.kubevirt.io") is None


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces/ns/virtualmachines/vm%2Fstart",
        "/namespaces/ns/virtualmachines/other%2f..%2Fvm/start",
        "/namespaces/mine%2Fvirtualmachines%2Fx%2Fy/virtualmachines/vm/start",
        "/namespaces/ns/virtualmachineinstances/vm/portforward%2F22/80",
        "%2Fversion",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_paths_that_can_be_read_in_two_ways_lead_nowhere(
    virt_api: VirtApi, method: str, path: str
) -> None:
    url = URL(f"{virt_api.url}{_BASE}{path}", encoded=True)
    before = len(virt_api.cluster.requests)
    async with virt_api.session.request(method, url) as answer:
        assert (answer.status, await answer.text()) == (404, "404: Page Not Found")
    assert len(virt_api.cluster.requests) == before


def _routes(virt_api: VirtApi) -> list[tuple[str, str, dict[str, str]]]:
    """Method, path and what the path means, of every route below a namespace, each part with a value."""
    found = []
    for route in virt_api.application.router.routes():
        template = route.resource.canonical if route.resource is not None else ""
        if "/namespaces/" not in template:
            continue
        values = {"namespace": "ns", "name": "vm", "port": "22", "protocol": "tcp"}
        kind, _, subresource = template.partition("/namespaces/{namespace}/")[2].partition("/{name}/")
        expected = {"verb": route.method, "resource": kind, "namespace": "ns"}
        if subresource:
            is_forward = subresource.startswith("portforward")
            expected |= {"name": "vm", "subresource": "portforward" if is_forward else subresource}
        found.append((route.method, template.format(**values), expected))
    return found


def test_what_is_authorized_is_what_is_routed(virt_api: VirtApi) -> None:
    verbs = {"GET": "get", "PUT": "update"}
    routes = _routes(virt_api)
    assert len(routes) > 60
    for method, path, expected in routes:
        found = authorization.attributes(method, path)
        if method == "HEAD":
            assert found is None
            continue
        assert found is not None, path
        found.pop("group")
        assert found.pop("version") == path.split("/")[3]
        assert found == {**expected, "verb": verbs[method]}, path


async def test_parameters_of_a_stream_add_no_others(
    virt_api: VirtApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stream(_agents: NodeAgents, _vmi: object, action: str) -> None:
        asked.append(action)
        raise NodeAgentError("not here")

    monkeypatch.setattr(NodeAgents, "stream", stream)
    metadata = {"name": "vm", "namespace": "ns"}
    virt_api.cluster.put(
        kinds.VIRTUAL_MACHINE_INSTANCES,
        {
            "metadata": metadata,
            "spec": {"domain": {"devices": {"autoattachVSOCK": True}}},
            "status": {"phase": "Running"},
        },
    )
    query = "port=22%26tls%3Dfalse%23"
    await virt_api.ask("GET", f"/namespaces/ns/virtualmachineinstances/vm/vsock?{query}")
    assert asked == ["vsock?port=22%26tls%3Dfalse%23"]
