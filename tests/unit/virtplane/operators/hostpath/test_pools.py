"""Storage pools that claims or all nodes back: claims, mounters, classes."""

from __future__ import annotations

import json

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.operators.hostpath.running_operator import (
    BACKED,
    NAMESPACE,
    OPTIONAL,
    TEMPLATE,
    running,
)

from kubecore import resources
from kubecore.objects import meta
from virtplane.api import resources as api


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
