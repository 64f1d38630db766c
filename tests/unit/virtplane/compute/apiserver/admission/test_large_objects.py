"""Objects of so many values that looking at them would keep everybody else's requests waiting."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.virtplane.compute.apiserver.admission import answers
from tests.unit.virtplane.compute.apiserver.admission.answers import NoObjects, ask, instance, machine

from kubecore.json import JsonObject
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import review
from virtplane.serving.responses import MOST_VALUES

_MACHINE = "/virtualmachines-mutate"
_SECONDS = 1.0
"""Of a processor: so long virt-api answers nobody else."""
_MANY: list[Any] = [{}] * 900_000
"""As many as a request has room for."""


def _machine(**spec: Any) -> JsonObject:
    made = machine(runStrategy="Always")
    made["spec"]["template"]["spec"] |= spec
    return made


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (answers.MUTATE, instance(tolerations=_MANY)),
        (answers.CREATE, instance(topologySpreadConstraints=_MANY)),
        (_MACHINE, _machine(tolerations=_MANY)),
        ("/virtualmachines-validate", _machine(readinessGates=_MANY)),
        (_MACHINE, {**_machine(), "metadata": {"name": "vm", "ownerReferences": _MANY}}),
        ("/status-validate", {**_machine(), "status": {"conditions": _MANY}}),
    ],
    ids=["instance", "created", "machine", "validated", "metadata", "status"],
)
async def test_an_object_of_very_many_values_is_refused_at_once(path: str, document: JsonObject) -> None:
    begun = time.thread_time()
    answer = await ask(path, document)
    assert time.thread_time() - begun < _SECONDS
    assert answer.status is not None
    assert f"has more than {MOST_VALUES} values" in answer.status["message"]


async def test_the_largest_useful_machine_passes() -> None:
    disks = [{"name": f"disk-{number}", "disk": {"bus": "scsi"}} for number in range(256)]
    volumes = [{"name": f"disk-{number}", "dataVolume": {"name": f"disk-{number}"}} for number in range(256)]
    document = _machine(volumes=volumes, tolerations=[{"key": f"k{number}"} for number in range(1000)])
    document["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = disks
    assert (await ask(_MACHINE, document)).allowed


async def test_a_finalizer_comes_off_an_object_of_very_many_values() -> None:
    old = _machine(readinessGates=_MANY[: MOST_VALUES + 1])
    old["metadata"] = {"name": "vm", "ownerReferences": _MANY[: MOST_VALUES + 1], "finalizers": ["a/b"]}
    new = {**old, "metadata": {**old["metadata"], "finalizers": []}}
    settings = ClusterConfig({"status": {"phase": "Deployed"}, "spec": {}})
    request = {"operation": "UPDATE", "namespace": "ns", "object": new, "oldObject": old, "userInfo": {}}
    answer = await review(_MACHINE, request, settings, NoObjects())
    assert "values" not in str(answer.status)
