"""What a guest agent lacks, and how the instance says so."""

from __future__ import annotations

import pytest
from tests.unit.virtplane.compute.handler.test_status import VMI, condition, report

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.structs import decode, encode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler import status
from virtplane.compute.handler.agent import support
from virtplane.compute.handler.agent.facts import GuestFacts

_BASIC = tuple(
    f"guest-{name}"
    for name in (
        *("ping", "get-time", "info", "shutdown", "network-get-interfaces", "get-fsinfo", "get-host-name"),
        *("get-users", "get-timezone", "get-osinfo"),
    )
)
_KEYS = ("guest-ssh-get-authorized-keys", "guest-ssh-add-authorized-keys", "guest-ssh-remove-authorized-keys")


def _vmi(*credentials: JsonObject) -> VirtualMachineInstance:
    vmi = deep_copy(VMI)
    vmi["spec"]["accessCredentials"] = list(credentials)
    return decode(VirtualMachineInstance, vmi)


_SECRET = {"secret": {"secretName": "s"}}
_KEY: JsonObject = {
    "sshPublicKey": {"source": _SECRET, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}
}
_PASSWORD: JsonObject = {"userPassword": {"source": _SECRET, "propagationMethod": {"qemuGuestAgent": {}}}}


@pytest.mark.parametrize(
    ("credentials", "commands", "lack"),
    [
        ((), _BASIC, ""),
        ((), _BASIC[1:], "basic"),
        ((_KEY,), _BASIC, "public key"),
        ((_KEY,), (*_BASIC, *_KEYS), ""),
        ((_PASSWORD,), _BASIC, "password"),
        ((_PASSWORD,), (*_BASIC, "guest-set-user-password"), ""),
    ],
)
def test_commands_that_are_needed_and_missing_are_named(
    credentials: tuple[JsonObject, ...], commands: tuple[str, ...], lack: str
) -> None:
    found = support.shortcoming(_vmi(*credentials), "7.2", commands, ())
    wanted = f"This guest agent doesn't support required {lack} commands" if lack else ""
    assert found == wanted


def test_an_agent_without_a_list_of_commands_is_judged_by_its_version() -> None:
    assert support.shortcoming(_vmi(), "4.1", (), support.DEFAULT_VERSIONS) == ""
    assert "basic" in support.shortcoming(_vmi(), "1.0", (), support.DEFAULT_VERSIONS)
    assert support.shortcoming(_vmi(), "1.0", (), ("[", "1.*")) == ""
    assert support.shortcoming(_vmi(), "", (), ()) == "", "it was not asked yet"


def test_the_condition_comes_and_goes_with_the_agent() -> None:
    facts = GuestFacts(True, agent_version="7.2", agent_commands=_BASIC[1:])
    found = status.render(_vmi(), report(facts=facts))
    told = condition(encode(found), "AgentVersionNotSupported")
    assert told is not None
    assert (told["status"], told["reason"]) == (
        "True",
        "This guest agent doesn't support required basic commands",
    )
    gone = status.render(_vmi(), report(facts=GuestFacts()))
    assert all(each.type != "AgentVersionNotSupported" for each in gone.conditions)
