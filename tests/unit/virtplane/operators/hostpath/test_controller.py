"""The operator against an API server in memory; DaemonSets' pods and claims are reported by the tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources as api
from virtplane.operators.hostpath import cluster_objects, rights
from virtplane.operators.hostpath.product import Settings
from virtplane.operators.hostpath.running import run_controller

NAMESPACE = "kubevirt"
SETTINGS = Settings(NAMESPACE, "registry.test/virtplane:1", "distributed", "v0.20.0")
OPTIONAL = (
    cluster_objects.CONSTRAINTS,
    cluster_objects.SERVICE_MONITORS,
    cluster_objects.PROMETHEUS_RULES,
)
POOLS = {"storagePools": [{"name": "a", "path": "/var/a", "snapshotProvider": "reflink"}]}
TEMPLATE = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "fast"}
BACKED = {"storagePools": [{"name": "hpp-csi-pvc-block", "path": "/var/b", "pvcTemplate": TEMPLATE}]}


class Operator:
    """A running operator, and its cluster."""

    def __init__(self, server: MemoryApi, ready: Gauge) -> None:
        self.server = server
        self.ready = ready

    def put(self, spec: JsonObject, name: str = "hostpath-provisioner", **status: Any) -> JsonObject:
        """Create or change the object."""
        old = self.server.get(api.HOSTPATH_PROVISIONERS, name) or {"metadata": {"name": name}}
        document = {
            "apiVersion": api.HOSTPATH_PROVISIONERS.api_version,
            "kind": "HostPathProvisioner",
            "metadata": old["metadata"],
            "spec": spec,
            "status": {**get_object(old, "status"), **status},
        }
        return self.server.put(api.HOSTPATH_PROVISIONERS, document)

    def get(self, resource: ResourceType, name: str, namespace: str = NAMESPACE) -> JsonObject:
        """An object that must exist."""
        found = self.server.get(resource, name, namespace if resource.namespaced else "")
        assert found is not None, f"no {resource.kind} {name}"
        return found

    async def appears(self, resource: ResourceType, name: str) -> JsonObject:
        """An object, once it exists."""
        where = NAMESPACE if resource.namespaced else ""
        found: JsonObject = await until(lambda: self.server.get(resource, name, where))
        return found

    async def deploy(self, names: Iterable[str] = ("hostpath-provisioner-csi",), node: str = "node1") -> None:
        """Report the DaemonSets' pods on one node as ready."""
        for name in names:
            await self.appears(resources.DAEMON_SETS, name)
            self.report(name, 1)
            owner = {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": name,
                "uid": "d",
                "controller": True,
            }
            metadata = {
                "name": f"{name}-1",
                "namespace": NAMESPACE,
                "labels": {"k8s-app": "hostpath-provisioner"},
                "ownerReferences": [owner],
            }
            self.server.put(resources.PODS, {"metadata": metadata, "spec": {"nodeName": node}})

    def report(self, name: str, ready: int) -> None:
        """Report how many of a DaemonSet's one pod are ready."""
        live = dict(self.get(resources.DAEMON_SETS, name))
        live["status"] = {
            "observedGeneration": meta.generation(live),
            "desiredNumberScheduled": 1,
            "numberReady": ready,
        }
        self.server.put(resources.DAEMON_SETS, live)

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The conditions: status, reason, message."""
        live = self.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        return {
            get_str(each, "type"): (
                get_str(each, "status"),
                get_str(each, "reason"),
                get_str(each, "message"),
            )
            for each in get_list(live, "status", "conditions")
        }

    async def is_condition(self, type_: str, *wanted: str) -> None:
        """Wait for a condition's status, reason and message."""
        await until(lambda: self.conditions().get(type_, ())[: len(wanted)] == wanted)

    def events(self) -> set[tuple[str, str]]:
        """Reasons and messages of all events."""
        found = self.server.list(resources.EVENTS)
        return {(get_str(each, "reason"), get_str(each, "message")) for each in found}


@asynccontextmanager
async def running(
    settings: Settings = SETTINGS, kinds: Iterable[ResourceType] = ()
) -> AsyncIterator[Operator]:
    """An operator on a cluster with one node that knows the optional `kinds`."""
    server = MemoryApi([api.HOSTPATH_PROVISIONERS, *kinds], whole=[api.HOSTPATH_PROVISIONERS])
    server.put(resources.NODES, {"metadata": {"name": "node1"}})
    ready = Gauge("kubevirt_hpp_cr_ready", "", registry=CollectorRegistry())
    ready.set(-1)
    async with server.client() as client:
        task = asyncio.create_task(run_controller(client, settings, ready))
        try:
            yield Operator(server, ready)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


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


async def test_the_drivers_pod_is_upstreams() -> None:
    async with running() as operator:
        operator.put({**POOLS, "featureGates": ["Snapshotting"], "imagePullPolicy": "Always"})
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        assert live["spec"]["selector"]["matchLabels"] == {"k8s-app": "hostpath-provisioner"}
        assert live["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}
        pod = live["spec"]["template"]["spec"]
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


async def test_the_compact_layout_has_one_container_for_all_sidecars() -> None:
    async with running(replace(SETTINGS, layout="compact", kubelet_root="/data/kubelet")) as operator:
        operator.put(POOLS)
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        driver, sidecars = live["spec"]["template"]["spec"]["containers"]
        assert sidecars["command"] == ["virtplane", "csi", "registrar,liveness,provisioner,resizer"]
        assert "--kubelet-registration-path=/data/kubelet/plugins/csi-hostpath/csi.sock" in sidecars["args"]
        assert len(sidecars["args"]) == len(set(sidecars["args"]))
        assert "--node-deployment=true" in sidecars["args"]
        assert "--leader-election" not in sidecars["args"]
        assert "/data/kubelet/pods" in {each["mountPath"] for each in driver["volumeMounts"]}


async def test_sidecars_of_one_process_serve_pools_that_all_nodes_share_without_a_long_wait() -> None:
    pool = {"name": "s", "path": "/pool", "overlayClassName": "virtplane", "snapshotProvider": "reflink"}
    async with running(replace(SETTINGS, layout="compact")) as operator:
        operator.put({"storagePools": [pool], "featureGates": ["Snapshotting"]})
        live = await operator.appears(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        _, sidecars = live["spec"]["template"]["spec"]["containers"]
        assert sidecars["command"][-1] == "registrar,liveness,provisioner,resizer,snapshotter"
        assert "--leader-election" not in sidecars["args"]
        assert "--node-deployment=true" in sidecars["args"]
        assert "--node-deployment-base-delay=50ms" in sidecars["args"]


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


@pytest.mark.feature("INS-35", "STO-65")
async def test_a_pool_of_a_template_gets_a_claim_and_a_mounter_for_each_node() -> None:
    name = "hpp-pool-hpp-csi-pvc-block-node1"
    async with running() as operator:
        operator.put(BACKED)
        await operator.deploy()
        claim = await operator.appears(resources.PERSISTENT_VOLUME_CLAIMS, name)
        assert claim["spec"] == TEMPLATE
        assert not meta.owner_references(claim)
        message = f"error: Pool PVC {name} is  instead of Bound"
        await operator.is_condition("Degraded", "True", "StoragePoolNotReady", message)
        operator.server.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        mounter = await operator.appears(resources.DEPLOYMENTS, name)
        (container,) = mounter["spec"]["template"]["spec"]["containers"]
        assert container["volumeDevices"] == [{"name": "data", "devicePath": "/dev/data"}]
        assert container["args"][:4] == ["--storagePoolPath", "/dev/data", "--mountPath", "/var/b/csi"]
        operator.server.put(resources.DEPLOYMENTS, {**mounter, "status": {"readyReplicas": 1}})
        await operator.is_condition("Available", "True")
        (status,) = operator.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")["status"][
            "storagePoolStatuses"
        ]
        assert (status["desiredReady"], status["currentReady"]) == (1, 1)
        assert status["claimStatuses"] == [{"name": name, "status": {"phase": "Bound"}}]


async def test_a_shared_pool_has_one_claim_and_a_class_of_its_own() -> None:
    template = {"accessModes": ["ReadWriteMany"]}
    pool = {"name": "s", "path": "/var/s", "pvcTemplate": template, "overlayClassName": "everywhere"}
    async with running() as operator:
        operator.put({"storagePools": [pool]})
        await operator.deploy()
        await operator.appears(resources.PERSISTENT_VOLUME_CLAIMS, "hpp-pool-s-shared")
        found = await operator.appears(resources.STORAGE_CLASSES, "everywhere")
        assert found["parameters"] == {"storagePool": "s", "overlayCSI": "true"}
        assert found["volumeBindingMode"] == "Immediate"
        live = operator.get(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        environment = live["spec"]["template"]["spec"]["containers"][0]["env"]
        (pools,) = (json.loads(each["value"]) for each in environment if each["name"] == "PV_DIR")
        assert pools == [{"name": "s", "path": "s-data-dir/csi", "claimed": True, "shared": True}]


async def test_a_path_that_all_nodes_have_is_shared_without_a_claim() -> None:
    async with running() as operator:
        operator.put({"storagePools": [{"name": "s", "path": "/pool", "overlayClassName": "virtplane"}]})
        await operator.deploy()
        found = await operator.appears(resources.STORAGE_CLASSES, "virtplane")
        assert found["parameters"] == {"storagePool": "s", "overlayCSI": "true", "volumeFormat": "image"}
        assert found["allowVolumeExpansion"] is True
        live = operator.get(resources.DAEMON_SETS, "hostpath-provisioner-csi")
        environment = live["spec"]["template"]["spec"]["containers"][0]["env"]
        (pools,) = (json.loads(each["value"]) for each in environment if each["name"] == "PV_DIR")
        assert pools == [{"name": "s", "path": "s-data-dir/csi", "shared": True}]
        assert operator.server.list(resources.PERSISTENT_VOLUME_CLAIMS) == []
        assert operator.server.list(resources.DEPLOYMENTS) == []


async def test_deletion_unmounts_pools_and_keeps_their_claims() -> None:
    name = "hpp-pool-hpp-csi-pvc-block-node1"
    async with running(kinds=OPTIONAL) as operator:
        operator.put(BACKED)
        await operator.deploy()
        claim = await operator.appears(resources.PERSISTENT_VOLUME_CLAIMS, name)
        operator.server.put(resources.PERSISTENT_VOLUME_CLAIMS, {**claim, "status": {"phase": "Bound"}})
        await operator.is_condition("Available", "True")
        async with operator.server.client() as client:
            await client.delete(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner")
        job = await operator.appears(resources.JOBS, "cleanup-pool-hpp-csi-pvc-block-node1")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["args"][-1] == "--unmount"
        assert container["args"][3] == "/var/b/csi"
        assert operator.server.get(api.HOSTPATH_PROVISIONERS, "hostpath-provisioner") is not None
        operator.server.put(resources.JOBS, {**job, "status": {"succeeded": 1}})
        await until(lambda: not operator.server.list(api.HOSTPATH_PROVISIONERS))
        for resource in (
            resources.JOBS,
            resources.DEPLOYMENTS,
            resources.CSI_DRIVERS,
            resources.CLUSTER_ROLES,
            resources.CLUSTER_ROLE_BINDINGS,
            resources.ROLES,
            *OPTIONAL,
        ):
            assert operator.server.list(resource) == [], resource.kind
        assert operator.server.get(resources.PERSISTENT_VOLUME_CLAIMS, name, NAMESPACE) is not None


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
