"""The alerts of CDI and what they are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.cdi_operator import SETTINGS

from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi import monitoring
from virtplane.operators.cdi.product import Parameters

PARAMETERS = Parameters(SETTINGS, CDI())
_INFO = "kubevirt_cdi_storageprofile_info"


@pytest.mark.parametrize(
    ("name", "expression", "after", "severity", "impact"),
    [
        pytest.param(
            "CDIDataImportCronOutdated",
            'sum by(namespace,cron_name) (kubevirt_cdi_dataimportcron_outdated{pending="false"}) > 0',
            "15m",
            "warning",
            "none",
            marks=pytest.mark.feature("MON-50"),
        ),
        pytest.param(
            "CDIDataVolumeUnusualRestartCount",
            "cluster:kubevirt_cdi_import_pods_high_restart:count > 0"
            " or cluster:kubevirt_cdi_upload_pods_high_restart:count > 0"
            " or cluster:kubevirt_cdi_clone_pods_high_restart:count > 0",
            "5m",
            "warning",
            "none",
            marks=pytest.mark.feature("MON-51"),
        ),
        pytest.param(
            "CDIDefaultStorageClassDegraded",
            f'sum({_INFO}{{default="true",degraded="false"}} or on() vector(0))'
            f' + sum({_INFO}{{virtdefault="true",degraded="false"}} or on() vector(0))'
            f' + on () (0*(sum({_INFO}{{default="true"}}) or sum({_INFO}{{virtdefault="true"}}))) == 0',
            "5m",
            "warning",
            "none",
            marks=pytest.mark.feature("MON-52"),
        ),
        pytest.param(
            "CDIMultipleDefaultVirtStorageClasses",
            f'sum({_INFO}{{virtdefault="true"}} or on() vector(0)) > 1',
            "5m",
            "warning",
            "none",
            marks=pytest.mark.feature("MON-53"),
        ),
        pytest.param(
            "CDINoDefaultStorageClass",
            f'sum({_INFO}{{default="true"}} or on() vector(0))'
            f' + sum({_INFO}{{virtdefault="true"}} or on() vector(0))'
            " + (count(kubevirt_cdi_datavolume_pending == 0) or on() vector(0)) == 0",
            "5m",
            "warning",
            "none",
            marks=pytest.mark.feature("MON-54"),
        ),
        pytest.param(
            "CDINotReady",
            "kubevirt_cdi_cr_ready == 0",
            "10m",
            "critical",
            "critical",
            marks=pytest.mark.feature("MON-55"),
        ),
        pytest.param(
            "CDIOperatorDown",
            "cluster:kubevirt_cdi_operator_up:sum == 0",
            "10m",
            "critical",
            "critical",
            marks=pytest.mark.feature("MON-56"),
        ),
        pytest.param(
            "CDIStorageProfilesIncomplete",
            f'sum by(storageclass,provisioner) (({_INFO}{{complete="false"}}>0))',
            "5m",
            "info",
            "none",
            marks=pytest.mark.feature("MON-57"),
        ),
    ],
)
def test_alerts_are_those_of_cdi(name: str, expression: str, after: str, severity: str, impact: str) -> None:
    found = {each["alert"]: each for each in monitoring.alerts("https://runbooks.test/%s")}
    assert len(found) == 8
    alert = found[name]
    assert (alert["expr"], alert["for"]) == (expression, after)
    assert alert["annotations"]["runbook_url"] == f"https://runbooks.test/{name}"
    assert alert["labels"] == {
        "severity": severity,
        "operator_health_impact": impact,
        "kubernetes_operator_part_of": "kubevirt",
        "kubernetes_operator_component": "containerized-data-importer",
    }


@pytest.mark.parametrize(
    ("layout", "pods"), [("distributed", "cdi-operator-.*"), ("compact", "virt-operator-.*")]
)
def test_recording_rules_have_their_present_and_their_former_names(layout: str, pods: str) -> None:
    parameters = replace(PARAMETERS, settings=replace(SETTINGS, layout=layout))
    found = {each["record"]: each["expr"] for each in monitoring.recordings(parameters)}
    up = f"sum(up{{namespace='cdi', pod=~'{pods}'}} or vector(0))"
    assert found["cluster:kubevirt_cdi_operator_up:sum"] == found["kubevirt_cdi_operator_up"] == up
    assert found["cluster:kubevirt_cdi_clone_pods_high_restart:count"] == (
        "count(kube_pod_container_status_restarts_total{pod=~'.*-source-pod', container='cdi-clone-source'}"
        " > 3) or on() vector(0)"
    )
