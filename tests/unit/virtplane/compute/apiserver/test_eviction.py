"""Evicting the launcher of a running guest."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from virtplane.compute.apiserver.eviction import ALLOWED, Verdict, judge, mark_operations

_POD: JsonObject = {"spec": {"nodeName": "node"}}
_TEXT = 'Eviction triggered evacuation of VMI "ns/vmi"'


def _vmi(strategy: str = "", migratable: bool = True, **status: str) -> JsonObject:
    condition = {"type": "LiveMigratable", "status": "True" if migratable else "False"}
    return {
        "metadata": {"name": "vmi", "namespace": "ns"},
        "spec": {"evictionStrategy": strategy} if strategy else {},
        "status": {"nodeName": "node", "conditions": [condition], **status},
    }


@pytest.mark.parametrize(
    ("vmi", "default", "verdict"),
    [
        (_vmi(), "None", ALLOWED),
        (_vmi("None"), "LiveMigrate", ALLOWED),
        (_vmi("LiveMigrate"), "None", Verdict(_TEXT, mark=True)),
        (_vmi(), "LiveMigrate", Verdict(_TEXT, mark=True)),
        (_vmi("LiveMigrateIfPossible", migratable=False), "None", ALLOWED),
        (_vmi("External", migratable=False), "None", Verdict(_TEXT, mark=True)),
        (
            _vmi("LiveMigrate", migratable=False),
            "None",
            Verdict("VMI vmi is configured with an eviction strategy but is not live-migratable"),
        ),
        (_vmi("LiveMigrate", evacuationNodeName="node"), "None", Verdict(f"Evacuation in progress: {_TEXT}")),
        (_vmi("LiveMigrate", nodeName="other"), "None", Verdict("Eviction request for target Pod")),
    ],
)
@pytest.mark.feature("NOD-03", "NOD-04", "NOD-05", "NOD-08")
def test_the_strategy_decides_about_an_eviction(vmi: JsonObject, default: str, verdict: Verdict) -> None:
    assert judge(vmi, _POD, default) == verdict


def test_the_descheduler_is_remembered() -> None:
    operations = mark_operations(_vmi(), "node", "sigs.k8s.io/descheduler")
    assert operations[0]["value"] == "node"
    assert operations[1]["value"] == {"kubevirt.io/eviction-source": "descheduler"}
