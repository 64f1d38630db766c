"""What the operator makes, reports and changes back, against an API server in memory."""

from __future__ import annotations

import json

import pytest
from prometheus_client import Gauge
from tests.support.waiting import until
from tests.unit.virtplane.operators.hostpath.running_operator import NAMESPACE, OPTIONAL, POOLS, running

from kubecore import resources
from kubecore.objects import meta
from virtplane.api import resources as api
from virtplane.operators.hostpath import cluster_objects


def _value(ready: Gauge) -> float:
    (metric,) = ready.collect()
    return metric.samples[0].value


@pytest.mark.feature("INS-36", "STO-62")
async def test_a_pool_of_a_folder_becomes_available_with_its_driver() -> None:
    async with running() as operator:
        operator.put(POOLS)
        await operator.is_condition("Progressing", "True", "DeployStarted", "Started Deployment")
        assert operator.conditions()["Available"][0] == "False"
        await operator.deploy()
        await operator.is_condition("Available", "True", "Complete", "Application Available")
        assert {type_: state for type_, (state, _, _) in operator.conditions().items()} == {
            "Available": "True",
            "Progressing": "False",
            "Degraded": "False",
        }
        hpp = operator.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        assert meta.finalizers(hpp) == ["finalizer.delete.hostpath-provisioner"]
        status = hpp["status"]
        assert [status[key] for key in ("operatorVersion", "targetVersion", "observedVersion")] == [
            "v0.20.0"
        ] * 3
        assert status["storagePoolStatuses"] == [{"name": "a", "phase": "Ready"}]
        driver = operator.get(resources.CSI_DRIVERS, "kubevirt.io.hostpath-provisioner")
        assert driver["spec"]["volumeLifecycleModes"] == ["Persistent", "Ephemeral"]
        applied = json.loads(
            driver["metadata"]["annotations"]["hostpathprovisioner.kubevirt.io/lastAppliedConfiguration"]
        )
        assert applied["spec"] == driver["spec"]
        assert operator.server.get(resources.DAEMON_SETS, "hostpath-provisioner", NAMESPACE) is None
        await until(lambda: ("ProvisionerHealthy", "Provisioner Healthy") in operator.events())
        created = "Successfully created resource *v1.DaemonSet hostpath-provisioner-csi"
        assert ("CreateResourceSuccess", created) in operator.events()
        await until(lambda: _value(operator.ready) == 1)


async def test_a_driver_that_no_longer_runs_is_reported() -> None:
    async with running() as operator:
        operator.put(POOLS)
        await operator.deploy()
        await operator.is_condition("Available", "True")
        operator.report("hostpath-provisioner-csi", 0)
        await operator.is_condition(
            "Degraded", "True", "Degraded", "CR is deployed but DaemonSets are not ready"
        )
        assert operator.conditions()["Available"][0] == "False"
        await until(lambda: _value(operator.ready) == 0)


async def test_two_objects_are_none() -> None:
    async with running() as operator:
        operator.put(POOLS)
        await operator.deploy()
        await operator.is_condition("Available", "True")
        operator.put(POOLS, "another")
        operator.server.remove(resources.DAEMON_SETS, "hostpath-provisioner-csi", NAMESPACE)
        another = operator.get(api.HOSTPATH_PROVISIONERS, "another")
        operator.server.remove(api.HOSTPATH_PROVISIONERS, "another")
        await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        assert not meta.finalizers(another)


async def test_a_later_version_is_not_undone_and_an_earlier_one_upgraded() -> None:
    async with running() as operator:
        operator.put(POOLS, observedVersion="v0.21.0")
        operator.server.put(resources.CONFIG_MAPS, {"metadata": {"name": "other", "namespace": NAMESPACE}})
        await until(lambda: meta.finalizers(operator.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")))
        assert operator.server.list(resources.DAEMON_SETS) == []
        operator.put(POOLS, observedVersion="v0.19.0")
        await operator.is_condition(
            "Degraded", "True", "UpgradeStarted", "Started upgrade to version v0.20.0"
        )
        await operator.deploy()
        await operator.is_condition("Available", "True", "Complete")
        hpp = operator.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        assert hpp["status"]["observedVersion"] == "v0.20.0"


@pytest.mark.feature("MON-61", "MON-62", "MON-63")
async def test_prometheus_is_told_where_it_is_known() -> None:
    async with running(kinds=OPTIONAL) as operator:
        operator.put(POOLS)
        found = await operator.appears(cluster_objects.PROMETHEUS_RULES, "prometheus-hpp-rules")
        rules = found["spec"]["groups"][0]["rules"]
        alerts = {each["alert"]: each for each in rules if "alert" in each}
        assert alerts["HPPNotReady"]["expr"] == "kubevirt_hpp_cr_ready == 0"
        assert alerts["HPPOperatorDown"]["expr"] == "kubevirt_hpp_operator_up == 0"
        assert alerts["HPPSharingPoolPathWithOS"]["for"] == "1m"
        assert {"HPPPoolOvercommitted", "HPPPoolFull"} <= set(alerts)
        await operator.appears(cluster_objects.SERVICE_MONITORS, "service-monitor-hpp")
        await operator.appears(resources.SERVICES, "hpp-prometheus-metrics")
        constraint = await operator.appears(cluster_objects.CONSTRAINTS, "hostpath-provisioner-csi")
        assert constraint["allowPrivilegedContainer"] is True


async def test_what_others_change_is_changed_back_and_their_labels_stay() -> None:
    async with running() as operator:
        operator.put(POOLS)
        live = dict(await operator.appears(resources.CSI_DRIVERS, "kubevirt.io.hostpath-provisioner"))
        labels = {**live["metadata"]["labels"], "mine": "yes"}
        changed = {**live, "metadata": {**live["metadata"], "labels": labels}}
        changed["spec"] = {**live["spec"], "podInfoOnMount": False}
        operator.server.put(resources.CSI_DRIVERS, changed)

        def restored() -> bool:
            found = operator.get(resources.CSI_DRIVERS, "kubevirt.io.hostpath-provisioner")
            return bool(found["spec"]["podInfoOnMount"]) and meta.labels(found).get("mine") == "yes"

        await until(restored)
