"""Keys and passwords that the agent of a running guest sets."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.agent import credentials
from virtplane.compute.handler.agent.credentials import Access, CredentialKeeper, Outcome
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.rooted import Root

pytestmark = pytest.mark.feature("VMC-61")
SECRETS = "var/run/kubevirt-private/secret"


def _keys(secret: str, *users: str) -> dict[str, Any]:
    method = {"qemuGuestAgent": {"users": list(users)}}
    source = {"secret": {"secretName": secret}}
    return {"sshPublicKey": {"source": source, "propagationMethod": method}}


def _passwords(secret: str) -> dict[str, Any]:
    source = {"secret": {"secretName": secret}}
    return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}


def _instance(*found: dict[str, Any]) -> VirtualMachineInstance:
    spec = {"domain": {"devices": {}}, "accessCredentials": list(found)}
    return decode(VirtualMachineInstance, {"metadata": {"name": "vm", "namespace": "ns"}, "spec": spec})


def _mount(launcher: Path, secret: str, **files: str) -> None:
    folder = launcher / SECRETS / f"{secret}-access-cred"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


class Agent:
    """A hypervisor whose guest remembers what was set."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, ...]] = {}
        self.passwords: dict[str, str] = {}
        self.calls = 0

    async def set_authorized_keys(self, _name: str, user: str, keys: Iterable[str]) -> None:
        self.calls += 1
        self.keys[user] = tuple(keys)

    async def set_password(self, _name: str, user: str, password: str) -> None:
        self.calls += 1
        self.passwords[user] = password


async def keep(keeper: CredentialKeeper, vmi: VirtualMachineInstance, launcher: Path, agent: Agent) -> None:
    await keeper.keep(vmi, partial(Root, launcher), cast(Hypervisor, agent), "ns_vm")


def test_keys_of_all_credentials_of_a_user_are_joined(tmp_path: Path) -> None:
    _mount(tmp_path, "one", a="ssh-rsa A\n", b="ssh-rsa B\nssh-rsa C\n")
    _mount(tmp_path, "two", a="ssh-rsa A\nssh-rsa D\n")
    vmi = _instance(_keys("one", "root", "ann"), _keys("two", "ann"))
    with Root(tmp_path) as root:
        access = credentials.wanted(vmi, root)
    assert access.keys == {
        "root": ("ssh-rsa A", "ssh-rsa B", "ssh-rsa C"),
        "ann": ("ssh-rsa A", "ssh-rsa B", "ssh-rsa C", "ssh-rsa D"),
    }


@pytest.mark.timeout(20)
def test_many_keys_cost_time_in_proportion_to_their_number(tmp_path: Path) -> None:
    for secret in ("one", "two"):
        _mount(tmp_path, secret, a="".join(f"{secret} {number}\n" for number in range(60_000)))
    vmi = _instance(_keys("one", "root"), _keys("two", "root"))
    with Root(tmp_path) as root:
        assert len(credentials.wanted(vmi, root).keys["root"]) == 120_000


def test_passwords_stand_under_the_names_of_their_users(tmp_path: Path) -> None:
    _mount(tmp_path, "words", ann="secret\n", bob="other")
    with Root(tmp_path) as root:
        assert credentials.wanted(_instance(_passwords("words")), root) == Access(
            {}, {"ann": "secret", "bob": "other"}
        )


def test_what_cloud_init_hands_over_is_left_to_it() -> None:
    by_cloud_init: JsonObject = {"sshPublicKey": {"source": {}, "propagationMethod": {"noCloud": {}}}}
    assert not credentials.concern(_instance(by_cloud_init))
    assert credentials.concern(_instance(by_cloud_init, _keys("one", "root")))


async def test_a_changed_secret_reaches_the_guest_and_an_unchanged_one_is_left(tmp_path: Path) -> None:
    agent, keeper, vmi = Agent(), CredentialKeeper(), _instance(_keys("one", "root"))
    _mount(tmp_path, "one", a="ssh-rsa A")
    await keep(keeper, vmi, tmp_path, agent)
    await keep(keeper, vmi, tmp_path, agent)
    assert (agent.keys, agent.calls, keeper.outcome) == ({"root": ("ssh-rsa A",)}, 1, Outcome(True))
    _mount(tmp_path, "one", a="ssh-rsa B")
    await keep(keeper, vmi, tmp_path, agent)
    assert (agent.keys, agent.calls) == ({"root": ("ssh-rsa B",)}, 2)


async def test_after_an_agent_was_away_everything_is_set_again(tmp_path: Path) -> None:
    agent, keeper, vmi = Agent(), CredentialKeeper(), _instance(_keys("one", "root"))
    _mount(tmp_path, "one", a="ssh-rsa A")
    keeper.agent_is_offline(vmi, 0.0)
    await keep(keeper, vmi, tmp_path, agent)
    keeper.agent_is_offline(vmi, 100.0)
    await keep(keeper, vmi, tmp_path, agent)
    assert (agent.calls, keeper.outcome) == (2, Outcome(True))


async def test_an_agent_that_is_away_is_told_of_after_a_while(tmp_path: Path) -> None:
    agent, keeper, vmi = Agent(), CredentialKeeper(), _instance(_keys("one", "root"))
    _mount(tmp_path, "one", a="ssh-rsa A")
    assert (keeper.agent_is_offline(vmi, 100.0), keeper.outcome) == (15.0, None)
    assert (keeper.agent_is_offline(vmi, 110.0), keeper.outcome) == (5.0, None)
    assert keeper.agent_is_offline(vmi, 115.0) == 0
    assert keeper.outcome == Outcome(False, "Guest agent is offline")
    await keep(keeper, vmi, tmp_path, agent)
    assert (keeper.agent_is_offline(vmi, 200.0), keeper.outcome) == (15.0, Outcome(True))


async def test_a_missing_secret_is_a_failure_that_says_so(tmp_path: Path) -> None:
    agent, keeper = Agent(), CredentialKeeper()
    await keep(keeper, _instance(_keys("gone", "root")), tmp_path, agent)
    assert keeper.outcome is not None
    assert not keeper.outcome.succeeded
    assert "gone-access-cred" in keeper.outcome.message


async def test_instances_without_such_credentials_have_no_outcome(tmp_path: Path) -> None:
    keeper = CredentialKeeper()
    assert keeper.agent_is_offline(_instance(), 0.0) == 0
    assert keeper.outcome is None
    await keep(keeper, _instance(), tmp_path, Agent())
    assert keeper.outcome is None
