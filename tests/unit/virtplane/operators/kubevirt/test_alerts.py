"""The alerts of KubeVirt and the rules that they are made of."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kubecore.json import JsonObject
from kubecore.runtime.component import CannotRun
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver import metrics as apimetrics
from virtplane.compute.controller import metrics
from virtplane.compute.handler import guestmetrics
from virtplane.operators.kubevirt.operator import EMULATION, is_emulating, runbook_url
from virtplane.operators.kubevirt.strategy import alerts, recordings
from virtplane.operators.kubevirt.strategy.parameters import Layout, Parameters
from virtplane.states import WITH_STATES

_URL = "https://runbooks.test/%s"
_REFERENCE = os.environ.get("VIRTPLANE_REFERENCE", "")
_METRIC = r"(?:[a-z_]+:)?(?:kubevirt|kube|container|apiserver)_[a-z0-9_]+(?::[a-z0-9]+)?"
_REQUESTS = "kubevirt_rest_client_requests_total"
_PANICS = "kubevirt_vmi_guest_os_panic_total"
_EXPORTED = ("kube_", "container_", "apiserver_", "up")
"""Beginnings of the names of metrics of Kubernetes' own exporters, and of Prometheus."""


def _parameters(layout: Layout = "distributed") -> Parameters:
    return Parameters("installed", "product:1", layout, ClusterConfig())


def _alerts(layout: Layout = "distributed") -> dict[str, JsonObject]:
    """By name; one has two severities, of which the last counts here."""
    return {each["alert"]: each for each in alerts.alerts(_parameters(layout), _URL)}


def _recordings(layout: Layout = "distributed") -> dict[str, str]:
    return {each["record"]: each["expr"] for each in recordings.recordings(_parameters(layout))}


@pytest.mark.parametrize(
    ("name", "expression", "after", "severity", "impact"),
    [
        pytest.param(
            "VirtAPIDown",
            "cluster:kubevirt_virt_api_pods_running:count == 0",
            "10m",
            "critical",
            "critical",
            marks=pytest.mark.feature("MON-93"),
        ),
        (
            "LowVirtControllersCount",
            "cluster:kubevirt_virt_controller_pods_running:count / on()"
            " kube_deployment_spec_replicas{deployment='virt-controller', namespace='installed'} < 0.75",
            "10m",
            "warning",
            "warning",
        ),
        (
            "NoLeadingVirtOperator",
            "cluster:kubevirt_virt_operator_leading:sum == 0",
            "10m",
            "critical",
            "critical",
        ),
        (
            "OutdatedVirtualMachineInstanceWorkloads",
            "kubevirt_vmi_number_of_outdated{namespace!=''} != 0",
            "24h",
            "warning",
            "none",
        ),
    ],
)
def test_alerts_are_those_of_kubevirt(
    name: str, expression: str, after: str, severity: str, impact: str
) -> None:
    alert = _alerts()[name]
    assert (alert["expr"], alert["for"]) == (expression, after)
    assert alert["annotations"]["runbook_url"] == f"https://runbooks.test/{name}"
    is_machines = impact == "none"
    assert alert["labels"] == {
        **({} if is_machines else {"namespace": "installed"}),
        "severity": severity,
        "operator_health_impact": impact,
        "kubernetes_operator_part_of": "kubevirt",
        "kubernetes_operator_component": "kubevirt",
    }


def test_in_the_compact_layout_the_control_plane_is_the_operators_pods() -> None:
    found = _recordings("compact")
    assert "pod=~'virt-operator-.*'" in found["cluster:kubevirt_virt_api_pods_running:count"]
    assert "kubevirt_virt_api_ready_status" in found["cluster:kubevirt_virt_api_ready:sum"]
    assert "pod=~'virt-handler-.*'" in found["cluster:kubevirt_virt_handler_up:sum"]
    assert "deployment='virt-operator'" in _alerts("compact")["LowVirtAPICount"]["expr"]


def test_nothing_is_measured_by_nobody() -> None:
    """Every metric in a rule is another rule's, an exporter's, or one that a component serves."""
    own = {*metrics.NAMES, *guestmetrics.NAMES, *apimetrics.NAMES, EMULATION, _REQUESTS, _PANICS}
    for component in WITH_STATES:
        own |= {f"kubevirt_{component.replace('-', '_')}_{kind}_status" for kind in ("ready", "leading")}
    known = own | set(_recordings())
    expressions = [*_recordings().values(), *(each["expr"] for each in _alerts().values())]
    for expression in expressions:
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|label_(?!replace)\w+", "", expression)
        used = set(re.findall(_METRIC, bare)) - known
        assert not [name for name in used if not name.startswith(_EXPORTED)], expression


@pytest.mark.skipif(not _REFERENCE, reason="VIRTPLANE_REFERENCE names no directory with recordings")
def test_every_rule_is_written_as_in_kubevirt() -> None:
    text = (Path(_REFERENCE) / "reference/kubevirt/metrics-alerts.md").read_text().replace("\\|", "|")
    text = text.replace("NS", "installed")
    [types] = re.findall("^FSX = `(.*)`$", text, re.MULTILINE)
    text = text.replace("!~'FSX'", f"!~'{types}'")
    names = set()
    for alert in alerts.alerts(_parameters(), _URL):
        name = alert["alert"]
        names.add(name)
        impact = alert["labels"]["operator_health_impact"]
        after = alert.get("for", "-")
        wanted = f"| {name} | `{alert['expr']}` | {after} | {alert['labels']['severity']} / {impact} |"
        assert wanted in text.splitlines()
    assert names == set(re.findall(r"^\| (\w+) \| `.*` \| [\w-]+ \| \w+ / \w+ \|$", text, re.MULTILINE))
    plain = {
        name: each
        for name, each in _recordings().items()
        if not re.search("virt_(api|contr|oper|hand)", name)
    }
    for name, expression in plain.items():
        if f"| {name} |" in text:
            assert f"`{expression}`" in text, name


@pytest.mark.parametrize("template", ["no place", "%s and %s"])
def test_runbooks_need_a_place_for_the_name(template: str) -> None:
    with pytest.raises(CannotRun, match="RUNBOOK_URL_TEMPLATE"):
        runbook_url(template)
    assert runbook_url("") == alerts.DEFAULT_RUNBOOK_URL
    assert runbook_url("https://own.test/%s.md") == "https://own.test/%s.md"


def test_the_operator_tells_whether_guests_may_be_emulated() -> None:
    settings = {"configuration": {"developerConfiguration": {"useEmulation": True}}}
    assert is_emulating([{"spec": settings}])
    assert not is_emulating([{"spec": {}}])
