"""Admission of streams and of requests that are passed on."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server

from kindling.apiserver.admission.conditions import review_request
from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kubecore import errors
from kubecore.json import JsonObject
from kubecore.resources import PODS


@dataclass
class Watchful(Admission):
    """Notes what it is asked about connections, changes what it is told to, and refuses the rest."""

    seen: list[JsonObject] = field(default_factory=list)
    changes: JsonObject | None = None

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        if attributes.operation == "CONNECT" and self.changes is not None and attributes.object is not None:
            attributes.object |= self.changes

    async def validate(self, attributes: AdmissionAttributes) -> None:
        if attributes.operation == "CONNECT":
            shown = attributes.definition.resource
            self.seen.append(review_request(attributes, "u", shown, attributes.object, None))
            if self.changes is None:
                raise errors.forbidden(shown, attributes.ctx.name, "not today")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[tuple[RunningServer, Watchful]]:
    async with running_server(tmp_path) as running:
        chain = running.server.registry.chain = Watchful()
        yield running, chain


async def ask(running: RunningServer, path: str) -> str:
    context = ssl.create_default_context(cadata=running.ca_data.decode())
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{running.url}/api/v1/{path}", ssl=context) as answer,
    ):
        return str((await answer.json())["message"])


@pytest.mark.parametrize(
    ("path", "kind", "options"),
    [
        (
            "namespaces/default/pods/p/exec?command=ls&command=-l&stdin=true&tty=false&container=c",
            "PodExecOptions",
            {"stdin": True, "container": "c", "command": ["ls", "-l"]},
        ),
        ("namespaces/default/pods/p/attach?stdout=1", "PodAttachOptions", {"stdout": True}),
        ("namespaces/default/pods/p/portforward?ports=80,443", "PodPortForwardOptions", {"ports": [80, 443]}),
        ("namespaces/default/pods/p/proxy/a/b?c=d", "PodProxyOptions", {"path": "/a/b"}),
        ("namespaces/default/services/s:web/proxy", "ServiceProxyOptions", {}),
        ("nodes/n/proxy/metrics", "NodeProxyOptions", {"path": "/metrics"}),
    ],
)
async def test_admission_sees_the_options_of_a_connection_and_may_refuse_it(
    server: tuple[RunningServer, Watchful], path: str, kind: str, options: JsonObject
) -> None:
    running, chain = server

    assert (await ask(running, path)).endswith("not today")

    (request,) = chain.seen
    assert request["kind"] == {"group": "", "version": "v1", "kind": kind}
    assert request["object"] == {"kind": kind, "apiVersion": "v1", **options}
    assert request["operation"] == "CONNECT"
    assert request["subResource"] in path.partition("?")[0].split("/")
    assert (request["options"], request["dryRun"]) == (None, False)


@pytest.mark.parametrize("port", ["%2080", "%2B80", "8_0", "%C2%B2", "%D9%A1", "9" * 5000, ""])
async def test_no_port_is_forwarded_that_admission_did_not_see(
    server: tuple[RunningServer, Watchful], port: str
) -> None:
    running, chain = server
    chain.changes = {}
    assert (await ask(running, f"namespaces/default/pods/p/portforward?ports=443,{port}")).startswith(
        "invalid port"
    )
    assert chain.seen == []


async def test_a_stream_is_opened_as_admission_changed_it(server: tuple[RunningServer, Watchful]) -> None:
    running, chain = server
    chain.changes = {"container": "other"}
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await running.server.objects.create(PODS, pod)

    assert await ask(running, "namespaces/default/pods/p/exec?container=c&command=ls") == (
        "container other is not valid for pod p"
    )


async def test_logs_are_no_connection(server: tuple[RunningServer, Watchful]) -> None:
    running, chain = server

    assert await ask(running, "namespaces/default/pods/p/log") == 'pods "p" not found'
    assert chain.seen == []
