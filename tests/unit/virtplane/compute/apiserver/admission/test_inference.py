"""What a machine takes over from the labels of its volume."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.patch.jsonpatch import apply_json_patch
from virtplane.compute.apiserver.admission import Response

from .reviewing import Objects, ask, machine

_LABELS = {"instancetype.kubevirt.io/default-instancetype": "small"}


async def _inferred(*sources: tuple[str, JsonObject]) -> tuple[Response, JsonObject]:
    """The answer for a machine whose disk is made of the first of these DataSources, and what it becomes."""
    new = machine(
        instancetype={"inferFromVolume": "root"},
        dataVolumeTemplates=[
            {
                "metadata": {"name": "dv"},
                "spec": {"sourceRef": {"kind": "DataSource", "name": sources[0][1]["metadata"]["name"]}},
            }
        ],
    )
    new["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "dv"}}]
    answer = await ask("/virtualmachines-mutate", new, lookups=Objects(*sources))
    return answer, apply_json_patch(new, list(answer.patches))


def _source(name: str, refers_to: str = "", **labels: str) -> tuple[str, JsonObject]:
    source = {"dataSource": {"name": refers_to, "namespace": "ns"}} if refers_to else {}
    metadata = {"name": name, "namespace": "ns", "labels": labels}
    return "datasources", {"metadata": metadata, "spec": {"source": source}}


async def test_a_data_source_that_refers_to_another_has_its_labels() -> None:
    answer, made = await _inferred(_source("a", "b"), _source("b", **_LABELS))
    assert answer.allowed
    assert made["spec"]["instancetype"]["name"] == "small"


@pytest.mark.parametrize("end", ["a", "b", "c"])
async def test_data_sources_that_refer_to_each_other_are_followed_no_further_than_cdi_does(end: str) -> None:
    answer, _ = await _inferred(_source("a", "b"), _source("b", end), _source("c", **_LABELS))
    assert not answer.allowed
    assert "maximum depth of 1" in (answer.status or {})["message"]
