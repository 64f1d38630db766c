"""Commands that change what a machine does: what they ask of the server, what they say and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import SUB, FakeServer, Virtctl

_VM = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"
_MIGRATIONS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"


def _case(feature: str, arguments: str, path: str, body: dict[str, Any] | None, said: str) -> Any:
    return pytest.param(
        arguments.split(),
        path,
        body,
        said,
        id=arguments,
        marks=[pytest.mark.feature(*feature.split())] if feature else [],
    )


@pytest.mark.parametrize(
    ("arguments", "path", "body", "said"),
    [
        _case("CTL-21", "start vm", "virtualmachines/vm/start", {}, "VM vm was scheduled to start"),
        _case(
            "CTL-22",
            "start --paused vm",
            "virtualmachines/vm/start",
            {"paused": True},
            "VM vm was scheduled to start",
        ),
        _case("CTL-23", "stop vm", "virtualmachines/vm/stop", {}, "VM vm was scheduled to stop"),
        _case(
            "CTL-24 VML-18",
            "stop vm --grace-period 0 --force",
            "virtualmachines/vm/stop",
            {"gracePeriod": 0},
            "VM vm was scheduled to stop",
        ),
        _case("CTL-25", "restart vm", "virtualmachines/vm/restart", {}, "VM vm was scheduled to restart"),
        _case(
            "CTL-25",
            "restart vm --grace-period=0 --force=true",
            "virtualmachines/vm/restart",
            {"gracePeriodSeconds": 0},
            "VM vm was scheduled to restart",
        ),
        _case(
            "CTL-28 MIG-28", "migrate vm", "virtualmachines/vm/migrate", {}, "VM vm was scheduled to migrate"
        ),
        _case(
            "CTL-28",
            "migrate vm --addedNodeSelector zone=a,disk=ssd",
            "virtualmachines/vm/migrate",
            {"addedNodeSelector": {"zone": "a", "disk": "ssd"}},
            "VM vm was scheduled to migrate",
        ),
        _case(
            "CTL-26",
            "pause vmi vm",
            "virtualmachineinstances/vm/pause",
            {},
            "VMI vm was scheduled to pause",
        ),
        _case(
            "CTL-24",
            "stop vm --grace-period -1 --force",
            "virtualmachines/vm/stop",
            {"gracePeriod": -1},
            "VM vm was scheduled to stop",
        ),
        _case(
            "CTL-27",
            "unpause VMI vm",
            "virtualmachineinstances/vm/unpause",
            {},
            "VMI vm was scheduled to unpause",
        ),
        _case(
            "CTL-27",
            "unpause vmi vm",
            "virtualmachineinstances/vm/unpause",
            {},
            "VMI vm was scheduled to unpause",
        ),
        _case("", "reset vm", "virtualmachineinstances/vm/reset", None, "VMI vm was scheduled to reset"),
        _case(
            "",
            "soft-reboot vm",
            "virtualmachineinstances/vm/softreboot",
            None,
            "VMI vm was scheduled to soft-reboot",
        ),
    ],
)
def test_a_command_becomes_one_request(
    api: FakeServer, virtctl: Virtctl, arguments: list[str], path: str, body: dict[str, Any] | None, said: str
) -> None:
    result = virtctl(*arguments)
    assert (result.code, result.out, result.err) == (0, f"{said}\n", "")
    assert api.requests == [("PUT", f"{SUB}/default/{path}", body)]


@pytest.mark.feature("CTL-26", "CTL-27")
@pytest.mark.parametrize("verb", ["pause", "unpause"])
def test_a_vm_is_paused_and_resumed_through_its_instance(
    api: FakeServer, virtctl: Virtctl, verb: str
) -> None:
    api.answers["GET", _VM] = (200, {"spec": {"template": {}}})
    assert virtctl(verb, "vm", "vm").out == f"VMI vm was scheduled to {verb}\n"
    asked = [(method, path) for method, path, _ in api.requests]
    assert asked == [("GET", _VM), ("PUT", f"{SUB}/default/virtualmachineinstances/vm/{verb}")]


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        ({"runStrategy": "Halted"}, ". VirtualMachine vm is not set to run"),
        ({"running": False}, ". VirtualMachine vm is not set to run"),
        ({"runStrategy": "Always"}, ", it was not found"),
    ],
)
def test_pausing_what_does_not_run_says_why(
    api: FakeServer, virtctl: Virtctl, spec: dict[str, Any], end: str
) -> None:
    api.answers["GET", _VM] = (200, {"spec": {"template": {}, **spec}})
    api.refuse("PUT", f"{SUB}/default/virtualmachineinstances/vm/pause", 404, "not there")
    result = virtctl("pause", "vm", "vm")
    assert (result.code, result.err) == (1, f"Error pausing VirtualMachineInstance vm{end}\n")


def test_an_object_that_cannot_be_read_is_an_error_with_its_field(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _VM] = (200, {"spec": {"template": {}, "running": "sometimes"}})
    result = virtctl("pause", "vm", "vm")
    assert result.code == 1
    assert "spec.running" in result.err


@pytest.mark.parametrize(
    ("arguments", "action", "prefix"),
    [
        ("start vm", "start", "Error starting VirtualMachine "),
        ("stop vm", "stop", "error stopping VirtualMachine "),
        ("stop vm --force --grace-period=0", "stop", "error force stopping VirtualMachine: "),
        ("restart vm", "restart", "error restarting VirtualMachine: "),
        ("restart vm --force --grace-period=0", "restart", "error force restarting VirtualMachine: "),
        ("migrate vm", "migrate", "Error migrating VirtualMachine "),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(
    api: FakeServer, virtctl: Virtctl, arguments: str, action: str, prefix: str
) -> None:
    api.refuse("PUT", f"{SUB}/default/virtualmachines/vm/{action}", 409, "VM is already running")
    result = virtctl(*arguments.split())
    assert (result.code, result.out, result.err) == (1, "", f"{prefix}VM is already running\n")


@pytest.mark.parametrize(
    "arguments", ["stop vm --force", "stop vm --grace-period 0", "restart vm --force", "restart vm --force=1"]
)
def test_force_and_grace_period_belong_together(api: FakeServer, virtctl: Virtctl, arguments: str) -> None:
    result = virtctl(*arguments.split())
    assert (result.code, result.err) == (1, "Must both use --force=true and set --grace-period.\n")
    assert api.requests == []


def test_a_dry_run_is_announced_and_asked_of_the_server(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("start", "vm", "--dry-run").out == "Dry Run execution\nVM vm was scheduled to start\n"
    assert api.requests[0][2] == {"dryRun": ["All"]}


@pytest.mark.feature("CTL-29", "MIG-31")
def test_the_migration_under_way_is_cancelled(api: FakeServer, virtctl: Virtctl) -> None:
    items = [
        {"metadata": {"name": "old"}, "spec": {}, "status": {"phase": "Succeeded"}},
        {"metadata": {"name": "now"}, "spec": {}, "status": {"phase": "Running"}},
    ]
    api.answers["GET", _MIGRATIONS] = (200, {"metadata": {}, "items": items})
    assert virtctl("migrate-cancel", "vm").out == "VM vm was scheduled to migrate-cancel\n"
    assert "kubevirt.io%2Fvmi-name%3D%3Dvm" in api.requests[0][1].replace("/vmi", "%2Fvmi")
    assert [path for method, path, _ in api.requests if method == "DELETE"] == [f"{_MIGRATIONS}/now"]


def test_a_trial_of_cancelling_deletes_nothing(api: FakeServer, virtctl: Virtctl) -> None:
    items = [{"metadata": {"name": "now"}, "spec": {}, "status": {"phase": "Running"}}]
    api.answers["GET", _MIGRATIONS] = (200, {"metadata": {}, "items": items})
    assert virtctl("migrate-cancel", "vm", "--dry-run").out.startswith("Dry Run execution\n")
    method, path, body = api.requests[-1]
    assert method == "DELETE"
    assert "dryRun=All" in path or body["dryRun"] == ["All"]


@pytest.mark.feature("CTL-29")
def test_nothing_to_cancel_is_an_error(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MIGRATIONS] = (200, {"metadata": {}, "items": []})
    result = virtctl("migrate-cancel", "vm")
    assert (result.code, result.err) == (1, "Found no migration to cancel for vm\n")
