"""What is left of CDI when its object is deleted."""

from __future__ import annotations

import pytest
from tests.support.cdi_operator import NAMESPACE, OPTIONAL, running
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import get_str
from kubecore.objects import meta
from virtplane.api import resources as api

GATES = {"config": {"featureGates": ["HonorWaitForFirstConsumer"]}}


async def test_removal_ends_users_objects_before_the_components_and_leaves_nothing() -> None:
    async with running(kinds=OPTIONAL) as operator:
        operator.put(GATES)
        await operator.deploy()
        server = operator.server
        server.put(resources.SECRETS, {"metadata": {"name": "cdi-api-signing-key", "namespace": NAMESPACE}})
        finalizers = ["cdi.kubevirt.io/dataVolumeFinalizer"]
        volume = {"metadata": {"name": "d", "namespace": "x", "finalizers": finalizers}}
        server.put(api.DATA_VOLUMES, volume)
        pod = {
            "metadata": {"name": "importer-x", "namespace": "x", "labels": {"cdi.kubevirt.io": "importer"}}
        }
        server.put(resources.PODS, pod)
        async with server.client() as client:
            await client.delete(api.CDIS, "cdi")
            await operator.phase("Deleting")
            await until(lambda: meta.is_being_deleted(server.get(api.DATA_VOLUMES, "d", "x") or {}))
            assert operator.get(resources.DEPLOYMENTS, "cdi-deployment")
            patch = {"metadata": {"finalizers": None}}
            await client.patch(api.DATA_VOLUMES, "d", patch, "x", type="merge")
            await operator.disappears(api.CDIS, "cdi")
        kinds = (
            resources.DEPLOYMENTS,
            resources.SERVICES,
            resources.SERVICE_ACCOUNTS,
            resources.SECRETS,
            resources.CONFIG_MAPS,
            resources.CLUSTER_ROLES,
            resources.CLUSTER_ROLE_BINDINGS,
            resources.ROLES,
            resources.CUSTOM_RESOURCE_DEFINITIONS,
            resources.API_SERVICES,
            resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
            resources.MUTATING_WEBHOOK_CONFIGURATIONS,
            resources.PODS,
            *OPTIONAL,
        )
        assert {kind.kind: server.list(kind) for kind in kinds if server.list(kind)} == {}
        await until(
            lambda: ("DeleteResourceSuccess", "Deleted worker resources successfully") in operator.events()
        )
        operator.put(GATES)
        await operator.deploy()


async def test_removal_of_a_refused_object_leaves_the_installation() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        operator.put(GATES, name="second", finalizers=["operator.cdi.kubevirt.io"])
        await operator.phase("Error", "second")
        async with operator.server.client() as client:
            await client.delete(api.CDIS, "second")
        await operator.disappears(api.CDIS, "second")
        assert operator.get(resources.DEPLOYMENTS, "cdi-deployment")
        assert get_str(operator.cdi(), "status", "phase") == "Deployed"


@pytest.mark.feature("NEW-15")
async def test_what_a_removal_waits_for_is_told_with_names() -> None:
    async with running(kinds=OPTIONAL) as operator:
        operator.put(GATES)
        await operator.deploy()
        held = {"name": "d", "namespace": "x", "finalizers": ["cdi.kubevirt.io/dataVolumeFinalizer"]}
        operator.server.put(api.DATA_VOLUMES, {"metadata": held})
        async with operator.server.client() as client:
            await client.delete(api.CDIS, "cdi")
            await operator.phase("Deleting")
            assert "DeletionWaiting" not in {reason for reason, _ in operator.events()}
            cdi = operator.cdi()
            old = {**cdi["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            operator.server.put(api.CDIS, {**cdi, "metadata": old})
            left = "objects of users are being deleted: datavolumes x/d"
            told = f"Deleted at 2026-01-01T00:00:00Z, it waits: {left}"
            await until(lambda: ("DeletionWaiting", told) in operator.events())
