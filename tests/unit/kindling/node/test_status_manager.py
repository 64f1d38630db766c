"""Pods' statuses as they reach the API."""

from __future__ import annotations

from typing import Any

import pytest

from kindling.node.pods.status_manager import StatusManager, status_patch
from kubecore.errors import StatusError

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
}


class Api:
    """Remembers writes; `refuses` is the code of each answer, 0 for success."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.writes: list[tuple[str, Any]] = []

    async def patch(self, _kind: Any, _name: str, patch: Any, _namespace: str, **_options: Any) -> Any:
        self._write("patch", patch)

    async def delete(self, _kind: Any, _name: str, _namespace: str, **options: Any) -> Any:
        self._write("delete", options)

    def _write(self, verb: str, what: Any) -> None:
        self.writes.append((verb, what))
        if self.refuses:
            raise StatusError(self.refuses, "Refused", "no")


def status_manager(api: Api) -> StatusManager:
    client: Any = api
    return StatusManager(client)


async def test_only_what_changed_is_written_and_only_for_this_pod() -> None:
    api = Api()
    made = status_manager(api)
    status = {**POD["status"], "phase": "Running"}
    await made.publish(POD, status)
    await made.publish(POD, status)
    assert api.writes == [("patch", {"metadata": {"uid": "u"}, "status": {"phase": "Running"}})]
    made.forget("u")
    await made.publish(POD, status)
    assert len(api.writes) == 2


@pytest.mark.parametrize("code", [404, 409])
async def test_a_pod_that_is_gone_or_replaced_needs_no_status(code: int) -> None:
    api = Api(code)
    made = status_manager(api)
    await made.publish(POD, {"phase": "Running"})
    await made.confirm_deletion(POD)
    assert api.writes[-1] == ("delete", {"grace_period_seconds": 0, "uid": "u"})


async def test_a_status_that_was_refused_is_written_again() -> None:
    api = Api(503)
    made = status_manager(api)
    for _ in range(2):
        with pytest.raises(StatusError):
            await made.publish(POD, {"phase": "Running"})
    assert len(api.writes) == 2


def test_conditions_of_others_are_left_alone_and_what_is_gone_is_taken_back() -> None:
    old = {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
            {"type": "tenant/Gate", "status": "True"},
        ]
    }
    new = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "tenant/Gate", "status": "False"}]}
    assert status_patch(old, new) == {"conditions": [{"reason": None, "type": "Ready", "status": "True"}]}


def test_addresses_are_replaced_and_a_phase_is_never_taken_back() -> None:
    old = {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1"}
    assert status_patch(old, {"podIPs": [{"ip": "10.0.0.2"}]}) == {
        "podIP": None,
        "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
    }
