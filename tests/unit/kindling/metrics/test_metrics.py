"""The metrics API: usage from readings, when nodes are asked, and what is answered."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tests.support.web import serve_app

from kindling.metrics import documents, manifests
from kindling.metrics.component import MetricsApi
from kindling.metrics.samples import Reading, Summary, Usage, usage
from kindling.metrics.scraping import Agent, Scraper, Unreachable, agent_of, reader
from kubecore import errors
from kubecore.json import JsonObject

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def container(name: str, seconds: float, started: datetime = BEGIN) -> JsonObject:
    return {
        "name": name,
        "startTime": started.isoformat(),
        "cpu": {"usageCoreNanoSeconds": int(seconds * 1e9)},
        "memory": {"workingSetBytes": 2048},
    }


def reading(at: float, node_seconds: float, *containers: JsonObject) -> Reading:
    reference = {"name": "p", "namespace": "ns", "uid": "u"}
    document = {
        "node": {
            "cpu": {"usageCoreNanoSeconds": int(node_seconds * 1e9)},
            "memory": {"workingSetBytes": 4096},
        },
        "pods": [{"podRef": reference, "containers": list(containers)}],
    }
    return Reading(at, BEGIN + timedelta(seconds=100 + at), msgspec.convert(document, Summary, strict=False))


def test_usage_is_what_was_used_between_two_readings() -> None:
    found = usage(reading(0, 5, container("c", 1)), reading(10, 15, container("c", 6)))
    assert found.node == Usage(1_000_000_000, 4096)
    assert found.pods == {("ns", "p", "u"): {"c": Usage(500_000_000, 2048)}}
    assert found.seconds == 10


def test_a_container_that_started_between_readings_counts_from_its_start() -> None:
    started = BEGIN + timedelta(seconds=106)
    found = usage(reading(0, 0, container("c", 50)), reading(10, 0, container("c", 2, started)))
    assert found.pods["ns", "p", "u"]["c"].nanocores == 500_000_000
    just = BEGIN + timedelta(seconds=110)
    assert usage(reading(0, 0), reading(10, 0, container("c", 2, just))).pods == {}, "too young to tell"


def test_a_pod_is_left_out_while_one_of_its_containers_is_unknown() -> None:
    after = reading(10, 0, container("c", 2), {"name": "d"})
    assert usage(reading(0, 0, container("c", 1)), after).pods == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"2026-11-26T10:00:00Z"', b'"2026-11-26T10:00:00"'),
        (b'"usageCoreNanoSeconds":5', b'"usageCoreNanoSeconds":5' + b"0" * 400),
        (b'"workingSetBytes":7', b'"workingSetBytes":-7'),
    ],
    ids=["a start without time zone", "too much to reckon with", "less than nothing"],
)
def test_a_node_that_tells_nonsense_is_not_read(old: bytes, new: bytes) -> None:
    decode = msgspec.json.Decoder(Summary).decode
    figures = b'"cpu":{"usageCoreNanoSeconds":5},"memory":{"workingSetBytes":7}'
    container = b'{"name":"c","startTime":"2026-11-26T10:00:00Z",' + figures + b"}"
    reference = b'{"name":"p","namespace":"n","uid":"u"}'
    pods = b'[{"podRef":' + reference + b',"containers":[' + container + b"]}]"
    told = b'{"node":{' + figures + b'},"pods":' + pods + b"}"
    assert decode(told).pods[0].containers[0].name == "c"
    with pytest.raises(msgspec.ValidationError):
        decode(told.replace(old, new))


def test_documents_have_the_form_of_the_metrics_api() -> None:
    found = usage(reading(0, 5, container("c", 1)), reading(10, 15, container("c", 6)))
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "a"}}}
    assert documents.pod_metrics(pod, found) == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "labels": {"app": "a"},
            "creationTimestamp": "2026-01-01T00:01:50Z",
        },
        "timestamp": "2026-01-01T00:01:50Z",
        "window": "10.000s",
        "containers": [{"name": "c", "usage": {"cpu": "500m", "memory": "2Ki"}}],
    }
    again = {"metadata": pod["metadata"] | {"uid": "other"}}
    assert documents.pod_metrics(again, found) is None, "a new pod of the same name"


def test_agents_are_where_nodes_say() -> None:
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    node: JsonObject = {"metadata": {"name": "n"}, "status": {"addresses": addresses}}
    assert agent_of(node) == Agent("n", "10.0.0.1", 10250)
    assert agent_of({"metadata": {"name": "n"}}) is None
    addresses.append({"type": "InternalIP", "address": "fd00::1"})
    assert agent_of(node) == Agent("n", "10.0.0.1", 10250), "the first of both families"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_agents_are_read_at_addresses_of_both_families(address: str) -> None:
    authority = trustme.CA()
    serving, asking = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("n").configure_cert(serving)
    authority.configure_trust(asking)
    now = datetime.now(UTC).isoformat()
    counters = {
        "cpu": {"time": now, "usageCoreNanoSeconds": 7},
        "memory": {"time": now, "workingSetBytes": 9},
    }
    stats = {"node": {"nodeName": "n", "startTime": now, **counters}, "pods": []}
    application = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(stats)

    application.router.add_get("/stats/summary", answer)
    async with serve_app(application, serving, address) as port, aiohttp.ClientSession() as session:
        found = await reader(session, asking)(Agent("n", address, port))
    assert found == msgspec.convert(stats, Summary)


class Nodes:
    """Agents whose nodes use half a processor; those in `down` do not answer."""

    def __init__(self) -> None:
        self.reads: list[float] = []
        self.down: set[str] = set()

    async def read(self, agent: Agent) -> Summary:
        now = asyncio.get_running_loop().time()
        if agent.node in self.down:
            raise Unreachable("no answer")
        self.reads.append(now)
        return reading(now, now / 2, container("c", now / 4)).summary


AGENT = Agent("n", "10.0.0.1", 10250)


@pytest.mark.looptime
async def test_nodes_are_read_only_when_asked_and_the_last_reading_is_old() -> None:
    nodes = Nodes()
    scraper = Scraper(nodes.read)
    await asyncio.sleep(1000)
    assert nodes.reads == []
    first = (await scraper.usages([AGENT]))["n"]
    assert first.node.nanocores == 500_000_000
    assert len(nodes.reads) == 2 and first.seconds == pytest.approx(1.0)
    await scraper.usages([AGENT])
    assert len(nodes.reads) == 2
    await asyncio.sleep(15)
    later = (await scraper.usages([AGENT]))["n"]
    assert len(nodes.reads) == 3 and later.seconds == pytest.approx(15.0)
    await asyncio.sleep(1000)
    much_later = (await scraper.usages([AGENT]))["n"]
    assert len(nodes.reads) == 5 and much_later.seconds == pytest.approx(1.0)


@pytest.mark.looptime
async def test_a_node_that_does_not_answer_hides_no_other() -> None:
    nodes = Nodes()
    nodes.down.add("dead")
    found = await Scraper(nodes.read).usages([AGENT, Agent("dead", "10.0.0.2", 10250)])
    assert set(found) == {"n"}


@pytest.mark.looptime
async def test_those_who_ask_for_a_silent_node_do_not_wait_one_after_the_other() -> None:
    nodes, silent = Nodes(), Agent("silent", "10.0.0.2", 10250)

    async def read(agent: Agent) -> Summary:
        if agent == silent and loop.time() < 100:
            await asyncio.sleep(10)
            raise Unreachable("it says nothing")
        return await nodes.read(agent)

    loop, scraper = asyncio.get_running_loop(), Scraper(read)
    found = await asyncio.gather(*(scraper.usages([AGENT, silent]) for _ in range(50)))
    assert [set(each) for each in found] == [{"n"}] * 50
    assert loop.time() <= 11
    await asyncio.sleep(100)
    assert set(await scraper.usages([AGENT, silent])) == {"n", "silent"}


NODE = {
    "metadata": {"name": "n"},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
}
POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "n"}}


class Server:
    """The API server: one node with one pod."""

    async def list(self, resource: Any, *_: Any, **__: Any) -> JsonObject:
        return {"items": [NODE if resource.plural == "nodes" else POD]}

    async def get(self, resource: Any, name: str, _namespace: str) -> JsonObject:
        if name != "p":
            raise errors.not_found(resource, name)
        return POD


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("method", "path", "status", "expected"),
    [
        ("GET", "", 200, {"kind": "APIResourceList", "groupVersion": "metrics.k8s.io/v1beta1"}),
        ("GET", "/nodes", 200, {"kind": "NodeMetricsList"}),
        ("GET", "/nodes/n", 200, {"kind": "NodeMetrics"}),
        ("GET", "/nodes/x", 404, {"message": 'nodemetrics.metrics.k8s.io "x" not found'}),
        ("GET", "/pods", 200, {"kind": "PodMetricsList"}),
        ("GET", "/namespaces/ns/pods/p", 200, {"kind": "PodMetrics"}),
        ("GET", "/namespaces/ns/pods/x", 404, {"message": 'podmetrics.metrics.k8s.io "ns/x" not found'}),
        ("GET", "/pods?labelSelector=a,,", 400, {"reason": "BadRequest"}),
        ("DELETE", "/nodes/n", 405, {"reason": "MethodNotAllowed"}),
    ],
)
async def test_paths_are_answered(method: str, path: str, status: int, expected: JsonObject) -> None:
    client: Any = Server()
    await asyncio.sleep(10)
    api = MetricsApi(client, Scraper(Nodes().read))
    answer = await api.handle(make_mocked_request(method, f"/apis/metrics.k8s.io/v1beta1{path}"))
    assert isinstance(answer.body, bytes)
    document = orjson.loads(answer.body)
    assert answer.status == status
    assert expected.items() <= document.items()


def test_whoever_may_view_may_read_metrics() -> None:
    made = {
        (resource.kind, document["metadata"]["name"]): document
        for resource, document in manifests.objects(b"")
    }
    reader = made["ClusterRole", "system:aggregated-metrics-reader"]
    labels = reader["metadata"]["labels"]
    assert labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert reader["rules"] == [
        {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}
    ]
