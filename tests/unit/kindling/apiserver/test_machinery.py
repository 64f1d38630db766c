"""What holds for every kind: options, paging, watch lists, media types, identities."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.apiserver import (
    ADMIN_TOKEN,
    RunningServer,
    generic_definition,
    running_server,
    sample_definitions,
)

from kindling.apiserver.kinds import rbac
from kindling.apiserver.registry.reads import decode_continue
from kubecore import errors, resources
from kubecore.resources import CONFIG_MAPS

MAPS = "/api/v1/namespaces/default/configmaps"


@asynccontextmanager
async def serving(
    directory: Path, **settings: Any
) -> AsyncIterator[tuple[RunningServer, aiohttp.ClientSession]]:
    definitions = [
        *sample_definitions(),
        generic_definition(resources.SERVICE_ACCOUNTS),
        *rbac.definitions(),
    ]
    async with running_server(directory, definitions, **settings) as running:
        context = ssl.create_default_context(cadata=running.ca_data.decode())
        async with aiohttp.ClientSession(
            running.url,
            connector=aiohttp.TCPConnector(ssl=context),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        ) as client:
            yield running, client


async def make(running: RunningServer, *names: str) -> None:
    for name in names:
        await running.server.objects.create(CONFIG_MAPS, {"metadata": {"name": name, "namespace": "default"}})


async def test_a_dry_run_answers_as_if_and_stores_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):
        async with client.post(f"{MAPS}?dryRun=All", json={"metadata": {"name": "a"}}) as answer:
            assert answer.status == 201
            assert "resourceVersion" not in (await answer.json())["metadata"]
        assert running.server.objects.get(CONFIG_MAPS, "default", "a") is None


async def test_generated_names_are_free_and_begin_with_the_prefix(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        names = set()
        for _ in range(5):
            async with client.post(MAPS, json={"metadata": {"generateName": "x-"}}) as answer:
                names.add((await answer.json())["metadata"]["name"])
        assert len(names) == 5
        assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_pages_show_one_consistent_state_whatever_happens_between_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):
        await make(running, "a", "b", "c")
        async with client.get(f"{MAPS}?limit=2") as answer:
            first = await answer.json()
        assert first["metadata"]["remainingItemCount"] == 1
        revision, start = decode_continue(first["metadata"]["continue"])
        assert (str(revision), start) == (first["metadata"]["resourceVersion"], "b\0")
        await running.server.objects.delete(CONFIG_MAPS, "default", "c")
        await make(running, "d")
        async with client.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}") as answer:
            second = await answer.json()
        assert [item["metadata"]["name"] for item in second["items"]] == ["c"]


async def test_a_watch_list_ends_its_beginning_with_an_annotated_bookmark(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):
        await make(running, "a")
        query = (
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            "&timeoutSeconds=5"
        )
        async with client.get(f"{MAPS}?{query}") as answer:
            events = [json.loads(await answer.content.readline()) for _ in range(2)]
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
        assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_many_watchers_see_every_change_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):

        async def follow() -> list[str]:
            async with client.get(f"{MAPS}?watch=1&resourceVersion=0&timeoutSeconds=10") as answer:
                started.release()
                return [
                    json.loads(await answer.content.readline())["object"]["metadata"]["name"]
                    for _ in range(3)
                ]

        started = asyncio.Semaphore(0)
        watchers = [asyncio.create_task(follow()) for _ in range(30)]
        for _ in watchers:
            await started.acquire()
        await make(running, "a", "b", "c")
        assert await asyncio.gather(*watchers) == [["a", "b", "c"]] * 30


async def test_a_forgotten_revision_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):
        running.server.store.compacted_revision = running.server.store.revision
        async with client.get(f"{MAPS}?watch=1&resourceVersion=1") as answer:
            event = json.loads(await answer.content.readline())
        assert (event["type"], event["object"]["reason"]) == ("ERROR", "Expired")
        async with client.get(f"{MAPS}?resourceVersion=1&resourceVersionMatch=Exact") as answer:
            assert answer.status == 410


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "Table"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "PartialObjectMetadataList"),
        ("application/vnd.kubernetes.protobuf,application/json", "ConfigMapList"),
    ],
)
async def test_accept_chooses_the_form_of_a_list(tmp_path: Path, accept: str, kind: str) -> None:
    async with serving(tmp_path) as (_, client), client.get(MAPS, headers={"Accept": accept}) as answer:
        assert (await answer.json())["kind"] == kind


async def test_a_bound_token_is_its_account_until_the_account_goes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (running, client):
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        async with client.post(accounts, json={"metadata": {"name": "robot"}}) as answer:
            assert answer.status == 201
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        async with client.post(f"{accounts}/robot/token", json=request) as answer:
            token = (await answer.json())["status"]["token"]
        as_robot = {"Authorization": f"Bearer {token}"}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with client.post(path, json=review, headers=as_robot) as answer:
            user = (await answer.json())["status"]["userInfo"]
        assert user["username"] == "system:serviceaccount:default:robot"
        async with client.get(MAPS, headers=as_robot) as answer:
            assert answer.status == 403
        await running.server.objects.delete(resources.SERVICE_ACCOUNTS, "default", "robot")
        async with client.get(MAPS, headers=as_robot) as answer:
            assert answer.status == 401


async def test_a_token_of_a_secret_is_that_secrets_alone(tmp_path: Path) -> None:
    """Another secret of the name, even with the token in it, brings no token back."""
    async with serving(tmp_path) as (running, client):
        objects = running.server.objects
        await objects.create(resources.SERVICE_ACCOUNTS, named("ServiceAccount", "robot"))

        async def make(**more: Any) -> dict[str, Any]:
            annotations = {"kubernetes.io/service-account.name": "robot"}
            secret = named("Secret", "robot-token", type="kubernetes.io/service-account-token", **more)
            secret["metadata"]["annotations"] = annotations
            return await objects.create(resources.SECRETS, secret)

        async def status(token: str) -> int:
            async with client.get(MAPS, headers={"Authorization": f"Bearer {token}"}) as answer:
                return answer.status

        account = objects.get(resources.SERVICE_ACCOUNTS, "default", "robot")
        assert account is not None
        token = running.server.tokens.issue_legacy(account, await make())
        assert await status(token) == 401, "the secret does not hold it yet"
        held = {"token": base64.b64encode(token.encode()).decode()}
        await objects.modify(
            resources.SECRETS, "default", "robot-token", lambda found: {**found, "data": held}
        )
        assert await status(token) == 403
        await objects.delete(resources.SECRETS, "default", "robot-token")
        assert await status(token) == 401
        await make(data=held)
        assert await status(token) == 401


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """An object of the default namespace."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, **more}


async def test_tokens_of_a_retired_signing_key_stay_valid_while_the_key_is_listed(tmp_path: Path) -> None:
    from kindling.apiserver.auth.keys import new_key
    from kindling.apiserver.auth.service_accounts import TokenAuthority

    class Accounts:
        def get(self, resource: object, namespace: str | None, name: str) -> dict[str, Any]:
            return {"metadata": {"name": name, "namespace": namespace, "uid": "u"}}

        def list(self, resource: object, namespace: str | None = None) -> list[dict[str, Any]]:
            return []

        def exists(self, resource: object, namespace: str | None, name: str) -> bool:
            return True

    old, new = new_key(), new_key()
    account = {"metadata": {"name": "a", "namespace": "n", "uid": "u"}}
    token, _ = TokenAuthority([old], "https://issuer", (), Accounts()).issue(account, ["https://issuer"], 600)
    assert await TokenAuthority([new, old], "https://issuer", (), Accounts()).check(token) is not None
    with pytest.raises(errors.StatusError, match="Unauthorized"):
        await TokenAuthority([new], "https://issuer", (), Accounts()).check(token)


async def test_bodies_over_the_limit_are_refused(tmp_path: Path) -> None:
    # The server reads on for a while what it has refused; its end need not wait for that.
    async with serving(tmp_path, shutdown_grace_seconds=0.1) as (_, client):
        json_type = {"Content-Type": "application/json"}
        body = b'{"metadata":{"name":"a"},"data":{"k":"' + b"x" * (3 * 1024 * 1024) + b'"}}'
        async with client.post(MAPS, data=io.BytesIO(body), headers=json_type) as answer:
            assert answer.status == 413


async def test_objects_survive_a_restart_and_watchers_resume(tmp_path: Path) -> None:
    async with serving(tmp_path, storage=tmp_path / "db") as (running, client):
        await make(running, "a")
        async with client.get(MAPS) as answer:
            revision = (await answer.json())["metadata"]["resourceVersion"]
        await make(running, "b")
    async with serving(tmp_path, storage=tmp_path / "db") as (_, client):
        async with client.get(f"{MAPS}?watch=1&resourceVersion={revision}") as answer:
            event = json.loads(await answer.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")


async def test_the_openapi_documents_describe_what_discovery_lists(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        async with client.get("/openapi/v3") as answer:
            paths = (await answer.json())["paths"]
        assert {"api/v1", "apis/authorization.k8s.io/v1", "apis/example.com/v1"} <= paths.keys()
        async with client.get(paths["apis/authorization.k8s.io/v1"]["serverRelativeURL"]) as answer:
            document = await answer.json()
        assert "/apis/authorization.k8s.io/v1/subjectaccessreviews" in document["paths"]
        async with client.get("/openapi/v2") as answer:
            assert (await answer.json())["swagger"] == "2.0"
