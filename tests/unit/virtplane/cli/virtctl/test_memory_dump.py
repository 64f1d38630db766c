"""``memory-dump``: what is asked of the server, and what is refused before anything is made."""

from __future__ import annotations

import pytest

from .conftest import SUB, FakeServer, Virtctl

_MACHINE = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"
_CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/c"
_SUB = f"{SUB}/default/virtualmachines/vm"


def _changes(api: FakeServer) -> list[tuple[str, str, object]]:
    return [found for found in api.requests if found[0] != "GET"]


def test_a_dump_into_a_claim_is_asked_for(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("memory-dump", "get", "vm", "--claim-name", "c")
    assert (result.code, result.out) == (0, "Successfully submitted memory dump request of VM vm\n")
    assert _changes(api) == [("PUT", f"{_SUB}/memorydump", {"claimName": "c", "phase": ""})]


def test_a_further_dump_goes_into_the_claim_of_the_last(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("memory-dump", "get", "vm").code == 0
    assert _changes(api) == [("PUT", f"{_SUB}/memorydump", {"claimName": "", "phase": ""})]


def test_the_claim_of_dumps_is_let_go(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("memory-dump", "remove", "vm")
    said = "Successfully submitted remove memory dump association of VM vm\n"
    assert (result.code, result.out) == (0, said)
    assert [path for _, path, _ in _changes(api)] == [f"{_SUB}/removememorydump"]


@pytest.mark.parametrize(
    ("action", "path", "said"),
    [
        ("get", "memorydump", "error dumping vm memory, no"),
        ("remove", "removememorydump", "error removing memory dump association, no"),
    ],
)
def test_a_refusal_is_told(api: FakeServer, virtctl: Virtctl, action: str, path: str, said: str) -> None:
    api.refuse("PUT", f"{_SUB}/{path}", 409, "no")
    result = virtctl("memory-dump", action, "vm")
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("get", "accepts 2 arg(s), received 1"),
        ("keep vm", "invalid action type keep"),
        ("download vm", "missing outputFile to download the memory dump"),
        (
            "download vm --output f",
            "downloading a memory dump needs a VirtualMachineExport, and this server exports nothing yet",
        ),
        (
            "get vm --claim-name c --output f",
            "downloading a memory dump needs a VirtualMachineExport, and this server exports nothing yet",
        ),
        ("get vm --create-claim", "missing claim name"),
        (
            "get vm --create-claim --claim-name c",
            "PVC default/c already exists, check if it should be created if not remove create flag",
        ),
        (
            "get vm --create-claim --claim-name d --access-mode ReadOnlyMany",
            "cannot dump memory to a readonly pvc, use either ReadWriteOnce or ReadWriteMany if supported",
        ),
        (
            "get vm --create-claim --claim-name d --access-mode x",
            "invalid access mode, use either ReadWriteOnce or ReadWriteMany if supported",
        ),
        (
            "get vm --create-claim --claim-name d",
            "this server dumps no memory yet: no claim is created for it",
        ),
    ],
)
def test_what_cannot_succeed_makes_nothing(api: FakeServer, virtctl: Virtctl, line: str, said: str) -> None:
    api.answers["GET", _CLAIM] = (200, {"metadata": {"name": "c"}})
    api.refuse("GET", _CLAIM.removesuffix("c") + "d", 404, "not found")
    api.answers["GET", _CLAIM.removesuffix("c") + "d"][1]["reason"] = "NotFound"
    result = virtctl("memory-dump", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert _changes(api) == []


def test_a_new_claim_waits_until_the_old_one_is_let_go(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, {"status": {"memoryDumpRequest": {"claimName": "old"}}})
    result = virtctl("memory-dump", "get", "vm", "--create-claim", "--claim-name", "c")
    said = "please remove current memory dump association before creating a new claim for a new memory dump\n"
    assert (result.code, result.err) == (1, said)
    assert _changes(api) == []
