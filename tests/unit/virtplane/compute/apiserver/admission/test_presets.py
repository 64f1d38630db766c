"""Presets: what several of them give to one instance, however many there are."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api import resources
from virtplane.compute.apiserver.admission.mutation.presets import PresetConflict, apply_presets
from virtplane.serving import lookups
from virtplane.serving.lookups import ClientLookups


def preset(name: str, requests: JsonObject | None = None, **domain: Any) -> JsonObject:
    given = {**domain, **({"resources": {"requests": requests}} if requests else {})}
    return {"metadata": {"name": name}, "spec": {"selector": {}, "domain": given}}


def instance() -> JsonObject:
    return {"metadata": {"name": "v"}, "spec": {"domain": {}}}


def test_presets_that_agree_are_all_applied() -> None:
    made = instance()
    apply_presets(
        made,
        [
            preset("a", {"memory": "1Gi"}, cpu={"cores": 2}),
            preset("b", {"memory": "1Gi", "cpu": "1"}, cpu={"cores": 2}),
            preset("c", ioThreadsPolicy="auto"),
        ],
    )
    assert made["spec"]["domain"] == {
        "resources": {"requests": {"memory": "1Gi", "cpu": "1"}},
        "cpu": {"cores": 2},
        "ioThreadsPolicy": "auto",
    }


def test_the_first_preset_that_conflicts_is_named_with_all_differences() -> None:
    presets = [
        preset("a", {"memory": "1Gi"}, ioThreadsPolicy="auto"),
        preset("b", {"cpu": "1"}, cpu={"cores": 2}),
        preset("c", {"cpu": "2", "memory": "2Gi"}, ioThreadsPolicy="shared", cpu={"cores": 3}),
    ]
    with pytest.raises(PresetConflict) as conflict:
        apply_presets(instance(), presets)
    assert str(conflict.value) == (
        "VirtualMachinePresets cannot be applied due to conflicts: presets 'a' and 'c' conflict:"
        " spec.resources.requests[memory]: 1Gi != 2Gi, spec.ioThreadsPolicy: auto != shared"
    )


def test_thousands_of_presets_are_compared_in_no_time() -> None:
    many = {f"example.com/{number}": "1" for number in range(300)}
    presets = [preset(f"p{n}", {**many, f"own.example/{n}": "1"}) for n in range(1000)]
    begun = time.process_time()
    apply_presets(instance(), presets)
    assert time.process_time() - begun < 3


async def test_more_objects_of_a_namespace_than_webhooks_hold_are_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = resources.VIRTUAL_MACHINE_INSTANCE_PRESETS
    api = MemoryApi((kind,))
    for number in range(120):
        found = preset(f"p{number}")
        found["metadata"] |= {"namespace": "ns", "annotations": {"a": "x" * 10_000}}
        api.put(kind, found)
    async with api.client() as client:
        assert len(await ClientLookups(client).list(kind, "ns")) == 120
        assert await ClientLookups(client).list(kind, "other") == []
        monkeypatch.setattr(lookups, "MOST_BYTES", 1_000_000)
        with pytest.raises(StatusError, match="of namespace ns have more than 1000000 bytes; delete some"):
            await ClientLookups(client).list(kind, "ns")
