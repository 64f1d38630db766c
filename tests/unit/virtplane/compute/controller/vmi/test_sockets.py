"""Addresses of guests with a VSOCK device."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vmi import phases, sockets
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.controller.vmi.phases import Surroundings

_POD: JsonObject = {
    "metadata": {"name": "pod", "uid": "p1"},
    "spec": {"nodeName": "node", "containers": [{"name": "compute", "image": "i:1"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "compute", "state": {"running": {}}}],
    },
}


def _document(cid: int | None = None, phase: str = "Scheduling") -> JsonObject:
    status: JsonObject = {"phase": phase} | ({"VSOCKCID": cid} if cid is not None else {})
    spec = {"domain": {"devices": {"autoattachVSOCK": True}}}
    return {"metadata": {"name": "vmi", "namespace": "ns"}, "spec": spec, "status": status}


def _vmi(cid: int | None = None) -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, _document(cid))


@pytest.mark.parametrize(
    ("used", "chosen", "given"),
    [
        ((), 3, 3),
        ((), sockets.LAST, sockets.LAST),
        ((7, 8, None), 7, 9),
        ((sockets.LAST, 3), sockets.LAST, 4),
    ],
)
def test_an_address_is_one_that_nobody_has(used: tuple[int | None, ...], chosen: int, given: int) -> None:
    assert sockets.free_cid(map(_vmi, used), lambda _first, _last: chosen) == given


def test_addresses_are_chosen_from_those_that_the_kernel_leaves_to_guests() -> None:
    bounds: list[tuple[int, int]] = []

    def choose(first: int, last: int) -> int:
        bounds.append((first, last))
        return first

    sockets.free_cid([], choose)
    assert bounds == [(3, 0xFFFFFFFE)], "0xFFFFFFFF stands for any"


def test_there_is_an_end_to_addresses() -> None:
    everybody = [_vmi(cid) for cid in (3, 4, 5)]
    with pytest.raises(sockets.CidsExhausted, match="CIDs exhausted"):
        sockets.free_cid(everybody, lambda _first, _last: 4, last=5)
    assert sockets.free_cid([*everybody[:2]], lambda _first, _last: 4, last=5) == 5


def _next(document: JsonObject, around: Surroundings) -> JsonObject:
    status: JsonObject = phases.next_state(decode(VirtualMachineInstance, document), document, around)[
        "status"
    ]
    return status


def test_the_address_comes_with_the_node_and_stays() -> None:
    scheduled = _next(_document(), Surroundings(_POD, vsock_cid=4711))
    assert (scheduled["phase"], scheduled["VSOCKCID"]) == ("Scheduled", 4711)
    kept = _next(_document(17), Surroundings(_POD, vsock_cid=4711))
    assert (kept["phase"], kept["VSOCKCID"]) == ("Scheduled", 17)


def test_without_an_address_the_guest_waits_and_says_why() -> None:
    waiting = _next(_document(), Surroundings(_POD, error=SyncError("FailedCreate", "CIDs exhausted")))
    assert waiting["phase"] == "Scheduling"
    (told,) = [each for each in waiting["conditions"] if each["type"] == "Synchronized"]
    assert (told["status"], told["message"]) == ("False", "CIDs exhausted")
