"""Tokens for displays, at a real API server: who gets one, what it opens, and when it does not any more."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace

import orjson
import pytest
import pytest_asyncio
from aiohttp.test_utils import make_mocked_request
from tests.support.vnc_tokens import INSTALLED_IN, Answer, TokenCluster, token_cluster
from tests.support.waiting import until

from kubecore import resources as core
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.times import parse_time
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.api.vnc_access import GATE, GENERATOR_ROLE, ISSUER
from virtplane.compute.apiserver.vnctokens.requests import Tokens
from virtplane.serving.rights import Authorizer

_MAY_NOT = 403
_NOT_RUNNING = 400
"""What the display of a guest that does not run answers those who may open it."""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TokenCluster]:
    """A cluster without users."""
    async with token_cluster(tmp_path_factory.mktemp("tokens")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(one_cluster: TokenCluster) -> TokenCluster:
    """A namespace where a user may have tokens, and open displays."""
    made = await one_cluster.fresh(f"team-{secrets.token_hex(4)}")
    await made.grant(GENERATOR_ROLE)
    await made.grant("opener")
    return made


def _token(answer: Answer) -> str:
    assert answer.code == 200, answer.text
    return str(answer.document["token"])


def _claims(token: str) -> JsonObject:
    payload = token.split(".")[1]
    found: JsonObject = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


@pytest.mark.feature("ACC-08", "ACC-09", "ACC-10", "ACC-12")
async def test_a_token_opens_the_display_of_its_machine_and_of_no_other(cluster: TokenCluster) -> None:
    vm, _ = await cluster.machine("one"), await cluster.machine("two")
    for version in ("v1", "v1alpha1"):
        answer = await cluster.ask("one", version=version)
        token = _token(answer)
        claims = _claims(token)
        assert claims["sub"] == f"system:serviceaccount:{cluster.namespace}:one-vnc-access"
        assert claims["exp"] - claims["iat"] == 600
        expiry = parse_time(answer.document["expirationTimestamp"])
        assert expiry == datetime.fromtimestamp(claims["exp"], UTC)
        assert (await cluster.open("one", token)).code == _NOT_RUNNING
        assert (await cluster.open("two", token)).code == _MAY_NOT
    async with cluster.server.client(token) as holder:
        with pytest.raises(StatusError, match="forbidden"):
            await holder.get(core.SERVICE_ACCOUNTS, "one-vnc-access", cluster.namespace)
    account = await cluster.account("one")
    (owner,) = account["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("VirtualMachine", meta.uid(vm))
    assert meta.labels(account)["app.kubernetes.io/managed-by"] == ISSUER
    # Asking again used the same account, so that the first token counts still.
    assert claims["kubernetes.io"]["serviceaccount"]["uid"] == meta.uid(account)


_TOO_SHORT = "failed to request token: "
_DURATIONS: list[tuple[str, int, str]] = [
    ("5h30m", 200, ""),
    ("600s", 200, ""),
    ("9m59s", 500, _TOO_SHORT),
    ("-1h", 500, _TOO_SHORT),
    ("2000000h", 500, "failed to request token: "),
    ("9999999999s", 400, 'failed to parse duration: time: invalid duration "9999999999s"'),
    ("10", 400, 'failed to parse duration: time: missing unit in duration "10"'),
    ("1" * 5000 + "h", 400, "failed to parse duration: it is too long"),
]


@pytest.mark.feature("ACC-09")
async def test_durations_are_gos_and_at_least_ten_minutes(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    for duration, code, told in _DURATIONS:
        answer = await cluster.ask("one", duration=duration)
        assert (answer.code, answer.text[: len(told)]) == (code, told), duration
        if code == 200:
            claims = _claims(_token(answer))
            assert claims["exp"] - claims["iat"] == {"5h30m": 19800, "600s": 600}[duration]


@pytest.mark.feature("ACC-09")
async def test_a_token_ends_when_it_says(cluster: TokenCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.machine("one")
    token = _token(await cluster.ask("one"))
    assert (await cluster.open("one", token)).code == _NOT_RUNNING
    later = SimpleNamespace(time=lambda: time.time() + 601)
    monkeypatch.setattr("kindling.apiserver.auth.service_accounts.time", later)
    assert (await cluster.open("one", token)).code == 401


@pytest.mark.feature("ACC-12")
async def test_those_who_may_not_get_no_token_and_leave_nothing_behind(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    stranger = await cluster.ask("one", user="eve")
    assert stranger.code == 403 and "virtualmachines/vnc" in stranger.text
    await cluster.grant(GENERATOR_ROLE, "bob")
    # He may ask for tokens, and not open the display himself.
    assert await cluster.ask("one", user="bob") == Answer(401, "")
    with pytest.raises(StatusError, match="not found"):
        await cluster.account("one")
    missing = await cluster.ask("nobody")
    assert missing.code == 404 and missing.text.startswith("VirtualMachine does not exist: ")


@pytest.mark.feature("ACC-11")
async def test_deleting_the_account_ends_all_its_tokens(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    tokens = [_token(await cluster.ask("one")) for _ in range(2)]
    await cluster.client.delete(core.SERVICE_ACCOUNTS, "one-vnc-access", cluster.namespace)
    assert [(await cluster.open("one", token)).code for token in tokens] == [401, 401]
    # A new account has another identity: old tokens do not come back to life.
    fresh = _token(await cluster.ask("one"))
    assert [(await cluster.open("one", token)).code for token in tokens] == [401, 401]
    assert (await cluster.open("one", fresh)).code == _NOT_RUNNING


async def test_a_token_of_a_machine_that_is_gone_does_not_open_the_next_of_its_name(
    cluster: TokenCluster,
) -> None:
    await cluster.machine("one")
    old = _token(await cluster.ask("one", duration="1000h"))
    await cluster.remove("one")
    await cluster.machine("one")
    # The account is there still: the garbage collector has not come by.
    refused = await cluster.open("one", old)
    assert refused.code == _MAY_NOT and "another VirtualMachine" in refused.text
    fresh = _token(await cluster.ask("one"))
    assert (await cluster.open("one", fresh)).code == _NOT_RUNNING
    assert (await cluster.open("one", old)).code == 401


async def test_a_token_of_a_machine_does_not_open_an_instance_that_has_none(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    token = _token(await cluster.ask("one"))
    path = {"metadata": {"ownerReferences": None}}
    await cluster.client.patch(VIRTUAL_MACHINE_INSTANCES, "one", path, cluster.namespace, type="merge")
    assert (await cluster.open("one", token)).code == _MAY_NOT


async def test_nobody_gets_the_rights_of_somebodys_account_that_has_the_name(cluster: TokenCluster) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "opener"}
    kinds: list[tuple[ResourceType, JsonObject]] = [
        (core.SERVICE_ACCOUNTS, {}),
        (core.ROLES, {"rules": []}),
        (core.ROLE_BINDINGS, {"roleRef": role}),
    ]
    for resource, content in kinds:
        machine = resource.plural
        name = f"{machine}-vnc-access"
        made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        await cluster.client.create(resource, {**made, **content}, cluster.namespace)
        await cluster.machine(machine)
        answer = await cluster.ask(machine)
        told = f'error creating resources: {resource.plural} "{name}" was not made for tokens'
        assert (answer.code, answer.text[: len(told)]) == (500, told)
        kept = await cluster.client.get(resource, name, cluster.namespace)
        assert "ownerReferences" not in kept["metadata"]


async def test_a_role_that_somebody_widened_is_made_anew(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    await cluster.machine("two")
    _token(await cluster.ask("one"))
    wide = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    await cluster.client.patch(core.ROLES, "one-vnc-access", wide, cluster.namespace, type="merge")
    token = _token(await cluster.ask("one"))
    assert (await cluster.open("two", token)).code == _MAY_NOT
    assert (await cluster.open("one", token)).code == _NOT_RUNNING


async def test_what_was_half_made_is_completed_by_the_next_request(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    token = _token(await cluster.ask("one"))
    for resource in (core.ROLES, core.ROLE_BINDINGS):
        await cluster.client.delete(resource, "one-vnc-access", cluster.namespace)
        assert (await cluster.open("one", token)).code == _MAY_NOT
        _token(await cluster.ask("one"))
        assert (await cluster.open("one", token)).code == _NOT_RUNNING


async def test_only_so_many_tokens_are_made_at_once() -> None:
    client = MemoryApi().client()
    tokens = Tokens(Authorizer(client), client, lambda: True, most=0)
    with pytest.raises(StatusError) as refused:
        await tokens.create(make_mocked_request("GET", "/"))
    assert (refused.value.code, refused.value.retry_after_seconds) == (429, 1)
    await client.close()


async def test_those_who_ask_at_the_same_time_all_get_tokens_of_one_account(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    answers = await asyncio.gather(*(cluster.ask("one") for _ in range(8)))
    accounts = {_claims(_token(answer))["kubernetes.io"]["serviceaccount"]["uid"] for answer in answers}
    assert accounts == {meta.uid(await cluster.account("one"))}


@pytest.mark.feature("ACC-07")
async def test_nothing_is_issued_while_the_gate_is_closed(cluster: TokenCluster) -> None:
    await cluster.machine("one")
    await cluster.set_gates()

    async def answers(code: int) -> bool:
        answer = await cluster.ask("one")
        assert answer.code in (200, 404)
        return answer.code == code

    await until(lambda: answers(404))
    await cluster.set_gates(GATE)
    await until(lambda: answers(200))


async def test_the_issuer_acts_on_nothing_else(cluster: TokenCluster) -> None:
    """Who could act as the issuer would get at displays only, not at every account of the cluster."""
    await cluster.client.create(core.SERVICE_ACCOUNTS, {"metadata": {"name": "rich"}}, cluster.namespace)
    issuer = cluster.user(f"system:serviceaccount:{INSTALLED_IN}:{ISSUER}")
    async with issuer:
        with pytest.raises(StatusError, match="may only act on what is named"):
            await _token_request(issuer, "rich", cluster.namespace)
        with pytest.raises(StatusError, match="may only act on what is named"):
            await issuer.delete(core.SERVICE_ACCOUNTS, "rich", cluster.namespace)
        rule = {
            "apiGroups": ["subresources.kubevirt.io"],
            "resources": ["virtualmachineinstances/vnc"],
            "verbs": ["get"],
        }
        role: JsonObject = {"metadata": {"name": "x-vnc-access"}, "rules": [rule]}
        with pytest.raises(StatusError, match="may only grant access to the display of one machine"):
            await issuer.create(core.ROLES, role, cluster.namespace)
        own = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ISSUER}
        friend = {"kind": "ServiceAccount", "name": "rich", "namespace": cluster.namespace}
        binding: JsonObject = {"metadata": {"name": "x-vnc-access"}, "roleRef": own, "subjects": [friend]}
        with pytest.raises(StatusError, match="may only bind the role of the same name"):
            await issuer.create(core.ROLE_BINDINGS, binding, cluster.namespace)


async def _token_request(client: Client, account: str, namespace: str) -> JsonObject:
    request: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return await client.create(core.SERVICE_ACCOUNTS, request, namespace, name=account, subresource="token")
