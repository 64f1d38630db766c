"""The pods of the driver and of the legacy provisioner that the operator makes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.operators.hostpath.running_operator import POOLS, SETTINGS, running

from kubecore import resources
from kubecore.objects import meta
from virtplane.api import resources as api
from virtplane.operators.hostpath import rights
from virtplane.storage import hostpathcsi


async def test_the_drivers_pod_is_upstreams() -> None:
    async with running() as operator:
        operator.put({**POOLS, "featureGates": ["Snapshotting"], "imagePullPolicy": "Always"})
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        assert live["spec"]["selector"]["matchLabels"] == {"k8s-app": "hostpath-provisioner"}
        assert live["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}
        pod = live["spec"]["template"]["spec"]
        assert pod["securityContext"] == {"runAsUser": 0}
        containers = {each["name"]: each for each in pod["containers"]}
        assert list(containers) == [
            "hostpath-provisioner",
            "node-driver-registrar",
            "liveness-probe",
            "csi-provisioner",
            "csi-resizer",
            "csi-snapshotter",
        ]
        assert {each["imagePullPolicy"] for each in containers.values()} == {"Always"}
        driver = containers["hostpath-provisioner"]
        environment = {each["name"]: each.get("value") for each in driver["env"]}
        path = "a-data-dir/csi"
        assert json.loads(environment["PV_DIR"] or "") == [
            {
                "name": "a",
                "path": path,
                "snapshotPath": f"{path}/snapshots",
                "snapshotProvider": "reflink",
                "shared": False,
            }
        ]
        assert "--datadir=$(PV_DIR)" in driver["args"]
        assert "--drivername=kubevirt.io.hostpath-provisioner" in driver["args"]
        assert "--strict-topology=true" in containers["csi-provisioner"]["args"]
        registration = "--kubelet-registration-path=/var/lib/kubelet/plugins/csi-hostpath/csi.sock"
        assert registration in containers["node-driver-registrar"]["args"]
        volumes = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"]}
        assert volumes["a-data-dir"] == "/var/a"
        role = await operator.appears(resources.CLUSTER_ROLES, "hostpath-provisioner-admin-csi")
        assert role["rules"] == rights.driver_rules(snapshots=True)


async def test_a_driver_is_not_ended_for_a_sidecar_that_has_not_started() -> None:
    """Who answers about the driver's health is a container that starts after it: a busy node takes long."""
    async with running() as operator:
        operator.put(POOLS)
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        driver = live["spec"]["template"]["spec"]["containers"][0]
        start, alive = driver["startupProbe"], driver["livenessProbe"]
        assert start["httpGet"] == alive["httpGet"]
        assert start["failureThreshold"] * start["periodSeconds"] >= 300
        assert alive["failureThreshold"] * alive["periodSeconds"] == 10


async def test_the_compact_layout_has_one_container_for_driver_and_sidecars() -> None:
    async with running(replace(SETTINGS, layout="compact", kubelet_root="/data/kubelet")) as operator:
        operator.put(POOLS)
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        (container,) = live["spec"]["template"]["spec"]["containers"]
        assert container["name"] == "hostpath-provisioner"
        parts = "registrar,liveness,provisioner,resizer"
        assert container["command"] == ["virtplane", "hostpath-csi", parts]
        arguments = container["args"]
        sidecars = arguments[: arguments.index("--")]
        assert "--kubelet-registration-path=/data/kubelet/plugins/csi-hostpath/csi.sock" in sidecars
        assert len(sidecars) == len(set(sidecars))
        assert "--node-deployment=true" in sidecars
        assert "--leader-election" not in sidecars
        options, driver = hostpathcsi.parse([parts, *arguments])
        assert options.parts == tuple(parts.split(","))
        assert driver.drivername == "kubevirt.io.hostpath-provisioner"
        mounts = [each["mountPath"] for each in container["volumeMounts"]]
        assert {"/data/kubelet/pods", "/data/kubelet/plugins", "/csi", "/registration"} < set(mounts)
        assert len(mounts) == len(set(mounts))
        environment = [each["name"] for each in container["env"]]
        assert {"CSI_ENDPOINT", "NODE_NAME", "NAMESPACE", "POD_NAME"} < set(environment)
        assert len(environment) == len(set(environment))


async def test_sidecars_of_one_process_serve_pools_that_all_nodes_share_without_a_long_wait() -> None:
    pool = {"name": "s", "path": "/pool", "overlayClassName": "virtplane", "snapshotProvider": "reflink"}
    async with running(replace(SETTINGS, layout="compact")) as operator:
        operator.put({"storagePools": [pool], "featureGates": ["Snapshotting"]})
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        (container,) = live["spec"]["template"]["spec"]["containers"]
        assert container["command"][-1] == "registrar,liveness,provisioner,resizer,snapshotter"
        assert "--leader-election" not in container["args"]
        assert "--node-deployment=true" in container["args"]
        assert "--node-deployment-base-delay=50ms" in container["args"]


@pytest.mark.feature("STO-63", "INS-37")
async def test_a_path_has_the_legacy_provisioner_until_there_are_pools() -> None:
    async with running() as operator:
        operator.put({"pathConfig": {"path": "/var/hpvolumes", "useNamingPrefix": True}})
        both = ("hostpath-provisioner", "hostpath-provisioner-csi")
        await operator.deploy(both)
        await operator.is_condition("Available", "True")
        legacy = operator.get(resources.DAEMON_SETS, "hostpath-provisioner")
        (container,) = legacy["spec"]["template"]["spec"]["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert (environment["PV_DIR"], environment["USE_NAMING_PREFIX"]) == ("/var/hpvolumes", "true")
        hpp = operator.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        assert hpp["status"]["storagePoolStatuses"] == [{"name": "legacy", "phase": "Ready"}]
        role = operator.get(resources.CLUSTER_ROLES, "hostpath-provisioner")
        assert role["rules"] == rights.legacy_rules()
        operator.put(POOLS)
        await until(lambda: operator.server.get(resources.CLUSTER_ROLES, "hostpath-provisioner") is None)
        daemon_sets = operator.server.list(resources.DAEMON_SETS)
        assert [meta.name(each) for each in daemon_sets] == ["hostpath-provisioner-csi"]


@pytest.mark.feature("INS-123")
async def test_the_driver_runs_where_the_object_says() -> None:
    workload = {
        "nodeSelector": {"storage": "local"},
        "tolerations": [{"key": "storage", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    async with running() as operator:
        operator.put({**POOLS, "workload": workload})
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        pod = live["spec"]["template"]["spec"]
        assert {key: pod[key] for key in workload} == workload
