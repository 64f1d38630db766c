"""The operator against an API server in memory: from an object to an installation, and to its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.cdi_operator import (
    COMPONENTS,
    NAMESPACE,
    OPTIONAL,
    SETTINGS,
    Operator,
    running,
)
from tests.support.waiting import until

from kubecore import resources
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.testing import MemoryApi
from virtplane.api import cdi_crds
from virtplane.api import resources as api
from virtplane.operators.cdi import extras, monitoring

GATES = {"config": {"featureGates": ["HonorWaitForFirstConsumer"]}}


def _value(operator: Operator) -> float:
    (metric,) = operator.ready.collect()
    return metric.samples[0].value


@pytest.mark.feature("INS-28", "INS-29")
async def test_an_object_becomes_an_installation() -> None:
    async with running() as operator:
        operator.put(GATES)
        started = await operator.phase("Deploying")
        assert operator.conditions() == {
            "Available": ("False", "", ""),
            "Progressing": ("True", "DeployStarted", "Started Deployment"),
            "Degraded": ("False", "", ""),
        }
        assert get_str(started, "status", "operatorVersion") == "v1.2.0"
        assert "observedVersion" not in started["status"]
        await operator.deploy()
        assert operator.conditions() == {
            "Available": ("True", "DeployCompleted", "Deployment Completed"),
            "Progressing": ("False", "", ""),
            "Degraded": ("False", "", ""),
        }
        deployments = {meta.name(each) for each in operator.server.list(resources.DEPLOYMENTS)}
        assert deployments == {"cdi-apiserver", "cdi-deployment", "cdi-uploadproxy"}
        cdi = operator.cdi()
        assert meta.finalizers(cdi) == ["operator.cdi.kubevirt.io"]
        versions = ("operatorVersion", "targetVersion", "observedVersion")
        assert [cdi["status"][key] for key in versions] == ["v1.2.0"] * 3
        await until(lambda: _value(operator) == 1)
        assert ("DeployStarted", "Started Deployment") in operator.events()
        await until(lambda: ("DeployCompleted", "Deployment Completed") in operator.events())
        created = "Successfully created resource *v1.Deployment cdi-deployment"
        assert ("CreateResourceSuccess", created) in operator.events()
        definitions = {
            meta.name(each) for each in operator.server.list(resources.CUSTOM_RESOURCE_DEFINITIONS)
        }
        assert definitions == {each.resource.group_resource for each in cdi_crds.DEFINITIONS}


async def test_what_is_installed_belongs_to_the_object_but_for_the_definitions() -> None:
    async with running() as operator:
        operator.put(GATES, labels={"app.kubernetes.io/part-of": "hco", "app.kubernetes.io/version": "4"})
        await operator.deploy()
        owner = meta.uid(operator.cdi())
        for resource in (resources.DEPLOYMENTS, resources.SECRETS, resources.CLUSTER_ROLES):
            for document in operator.server.list(resource):
                assert [each["uid"] for each in meta.owner_references(document)] == [owner]
                labels = meta.labels(document)
                assert labels["app.kubernetes.io/part-of"] == "hco"
                assert labels["app.kubernetes.io/managed-by"] == "cdi-operator"
                assert labels["operator.cdi.kubevirt.io/createVersion"] == "v1.2.0"
        for document in operator.server.list(resources.CUSTOM_RESOURCE_DEFINITIONS):
            assert not meta.owner_references(document)


async def test_webhooks_come_when_the_components_answer() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.appears(resources.DEPLOYMENTS, "cdi-uploadproxy")
        assert operator.server.list(resources.MUTATING_WEBHOOK_CONFIGURATIONS) == []
        await operator.deploy()
        document = operator.get(resources.VALIDATING_WEBHOOK_CONFIGURATIONS, "cdi-api-validate")
        assert document["webhooks"][0]["failurePolicy"] == "Ignore"
        assert operator.get(resources.API_SERVICES, "v1beta1.upload.cdi.kubevirt.io")


async def test_a_blocked_removal_is_guarded_even_while_nobody_answers() -> None:
    async with running() as operator:
        operator.put({**GATES, "uninstallStrategy": "BlockUninstallIfWorkloadsExist"})
        await operator.deploy()
        document = operator.get(resources.VALIDATING_WEBHOOK_CONFIGURATIONS, "cdi-api-validate")
        assert document["webhooks"][0]["failurePolicy"] == "Fail"


async def test_claims_are_completed_unless_the_config_says_no() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        assert operator.get(resources.MUTATING_WEBHOOK_CONFIGURATIONS, "cdi-api-pvc-mutate")
        operator.put({"config": {"webhookPvcRendering": "Disabled"}})
        await operator.disappears(resources.MUTATING_WEBHOOK_CONFIGURATIONS, "cdi-api-pvc-mutate")
        assert operator.get(resources.MUTATING_WEBHOOK_CONFIGURATIONS, "cdi-api-datavolume-mutate")


async def test_the_object_is_the_authority_over_the_config() -> None:
    def older(server: MemoryApi) -> None:
        config = {"metadata": {"name": "config"}, "spec": {"preallocation": True}}
        server.put(api.CDI_CONFIGS, config)

    async with running(before=older) as operator:
        operator.put()
        await operator.phase("Deploying")
        assert meta.annotations(operator.cdi())["cdi.kubevirt.io/configAuthority"] == ""
        assert operator.cdi()["spec"] == {"config": {"preallocation": True}}


async def test_settings_in_the_object_win_over_an_older_config() -> None:
    def older(server: MemoryApi) -> None:
        server.put(api.CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": {"preallocation": True}})

    async with running(before=older) as operator:
        operator.put(GATES)
        await operator.phase("Deploying")
        assert operator.cdi()["spec"] == GATES


async def test_a_second_object_is_refused_and_leaves_the_first_alone() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        operator.put(GATES, name="second")
        await operator.phase("Error", "second")
        message = "Reconciling to error state, unwanted CDI object"
        assert operator.conditions("second") == {
            "Available": ("False", "", ""),
            "Progressing": ("False", "", ""),
            "Degraded": ("True", "ConfigError", message),
        }
        await until(lambda: ("ConfigError", message) in operator.events())
        assert meta.finalizers(operator.cdi("second")) == []
        operator.server.remove(api.CDIS, "second")
        assert get_str(operator.cdi(), "status", "phase") == "Deployed"
        assert operator.get(resources.DEPLOYMENTS, "cdi-deployment")


async def test_the_claim_of_an_object_that_is_gone_is_free() -> None:
    def left(server: MemoryApi) -> None:
        owner = {"apiVersion": api.CDIS.api_version, "kind": "CDI", "name": "old", "uid": "old"}
        metadata = {"name": "cdi-config", "namespace": NAMESPACE}
        server.put(
            resources.CONFIG_MAPS,
            {"metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]}},
        )

    async with running(before=left) as operator:
        operator.put(GATES)
        await operator.deploy()
        (owner,) = meta.owner_references(operator.get(resources.CONFIG_MAPS, "cdi-config"))
        assert owner["uid"] == meta.uid(operator.cdi())


async def test_changes_by_others_are_undone() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        role = operator.get(resources.CLUSTER_ROLES, "cdi.kubevirt.io:edit")
        operator.server.put(resources.CLUSTER_ROLES, {**role, "rules": []})
        await until(lambda: operator.get(resources.CLUSTER_ROLES, "cdi.kubevirt.io:edit")["rules"])
        operator.server.remove(resources.DEPLOYMENTS, "cdi-apiserver", NAMESPACE)
        await operator.appears(resources.DEPLOYMENTS, "cdi-apiserver")
        await until(lambda: operator.conditions()["Degraded"] == ("True", "", ""))
        assert operator.conditions()["Available"][:2] == ("True", "DeployCompleted")
        operator.report("cdi-apiserver")
        await until(lambda: operator.conditions()["Degraded"] == ("False", "", ""))


async def test_a_deployment_with_another_selector_is_made_again() -> None:
    selector = {"matchLabels": {"app": "other"}}

    def older(server: MemoryApi) -> None:
        metadata = {
            "name": "cdi-deployment",
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "cdi-operator"},
        }
        server.put(resources.DEPLOYMENTS, {"metadata": metadata, "spec": {"selector": selector}})

    async with running(before=older) as operator:
        operator.put(GATES)
        await until(
            lambda: (
                (operator.server.get(resources.DEPLOYMENTS, "cdi-deployment", NAMESPACE) or {})
                .get("spec", {})
                .get("selector", selector)
                != selector
            )
        )


def _images(operator: Operator) -> set[str]:
    """The images of the components' pods."""
    pods = [operator.get(resources.DEPLOYMENTS, name)["spec"]["template"]["spec"] for name in COMPONENTS]
    return {container["image"] for pod in pods for container in pod["containers"]}


@pytest.mark.feature("STO-47")
async def test_an_upgrade_is_reported_and_completed_and_leaves_data_volumes_alone() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        server = operator.server
    former = {
        "metadata": {
            "name": "cdi-former",
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "cdi-operator"},
            "ownerReferences": [meta.new_controller_ref(operator.cdi(), api.CDIS)],
        }
    }
    server.put(resources.SERVICES, former)
    filled: JsonObject = {
        "metadata": {"name": "disk", "namespace": "users"},
        "status": {"phase": "Succeeded"},
    }
    claim = {"metadata": {"name": "disk", "namespace": "users"}, "status": {"phase": "Bound"}}
    kept = [server.put(api.DATA_VOLUMES, filled), server.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)]
    newer = replace(SETTINGS, version="v1.3.0", image="registry.test/virtplane:2")
    async with running(newer, server=server) as operator:
        await operator.phase("Upgrading")
        assert operator.conditions()["Degraded"] == (
            "True",
            "UpgradeStarted",
            "Started upgrade to version v1.3.0",
        )
        await until(lambda: _images(operator) == {newer.image})
        await operator.deploy()
        assert operator.cdi()["status"]["observedVersion"] == "v1.3.0"
        labels = meta.labels(operator.get(resources.DEPLOYMENTS, "cdi-deployment"))
        assert labels["operator.cdi.kubevirt.io/createVersion"] == "v1.2.0"
        assert labels["operator.cdi.kubevirt.io/updateVersion"] == "v1.3.0"
        await operator.disappears(resources.SERVICES, "cdi-former")
    assert kept == [
        server.get(kind, "disk", "users") for kind in (api.DATA_VOLUMES, resources.PERSISTENT_VOLUME_CLAIMS)
    ]


async def test_an_older_operator_touches_nothing() -> None:
    async with running() as operator:
        operator.put(GATES)
        await operator.deploy()
        server = operator.server
    writes = len([each for each in server.requests if each.method != "GET"])
    async with running(replace(SETTINGS, version="v1.1.9"), server=server) as operator:
        operator.put(GATES, annotations={"again": "1", "cdi.kubevirt.io/configAuthority": ""})
        reads = len(server.requests)
        await until(lambda: len(server.requests) > reads + 3)
        assert get_str(operator.cdi(), "status", "phase") == "Deployed"
    assert len([each for each in server.requests if each.method != "GET"]) == writes


async def test_a_spec_that_cannot_be_followed_is_reported() -> None:
    bad: JsonObject = {"resourceName": "cdi-apiserver", "resourceType": "Deployment", "type": "json"}
    async with running() as operator:
        operator.put({"customizeComponents": {"patches": [{**bad, "patch": "[{]"}]}})
        await until(lambda: operator.conditions().get("Degraded", ("",))[0] == "True")
        _, reason, message = operator.conditions()["Degraded"]
        assert reason == "CreateResources"
        assert message.startswith("Unable to create all resources: the patch of Deployment cdi-apiserver")
        operator.put(GATES)
        await operator.deploy()


async def test_the_compact_layout_has_no_pods_of_its_own() -> None:
    async with running(replace(SETTINGS, layout="compact")) as operator:
        operator.put(GATES)
        service = await operator.appears(resources.SERVICES, "cdi-api")
        assert service["spec"]["selector"] == {"kubevirt.io": "virt-operator"}
        await operator.appears(resources.SECRETS, "cdi-uploadserver-client-cert")
        assert get_str(operator.cdi(), "status", "phase") == "Deploying"
        operator.components_are_ready = True
        await operator.phase("Deployed")
        assert operator.server.list(resources.DEPLOYMENTS) == []


async def test_kinds_that_only_some_clusters_serve_are_used_where_they_are() -> None:
    def routed(server: MemoryApi) -> None:
        metadata = {
            "name": "own",
            "namespace": NAMESPACE,
            "annotations": {"operator.cdi.kubevirt.io/injectUploadProxyCert": "true"},
        }
        server.put(extras.ROUTES, {"metadata": metadata, "spec": {"tls": {"termination": "reencrypt"}}})
        server.put(extras.CONSTRAINTS, {"metadata": {"name": "containerized-data-importer"}, "users": ["u"]})

    async with running(kinds=OPTIONAL, before=routed) as operator:
        operator.put(GATES)
        await operator.deploy()
        found = {meta.name(each) for each in operator.server.list(extras.POPULATORS)}
        assert found == {
            "volumeimportsource",
            "volumeclonesource",
            "volumeuploadsource",
            "openstackvolumepopulator",
            "ovirtvolumepopulator",
        }
        constraints = operator.get(extras.CONSTRAINTS, "containerized-data-importer")
        accounts = [f"system:serviceaccount:cdi:{name}" for name in ("cdi-sa", "cdi-cronjob")]
        assert constraints["users"] == ["u", *accounts]
        bundle = operator.get(resources.CONFIG_MAPS, "cdi-uploadproxy-signer-bundle")["data"]["ca-bundle.crt"]
        for name in ("cdi-uploadproxy", "own"):
            tls = operator.get(extras.ROUTES, name)["spec"]["tls"]
            assert tls["destinationCACertificate"] == bundle
        assert operator.get(monitoring.SERVICE_MONITORS, "service-monitor-cdi")
        rules = operator.get(monitoring.PROMETHEUS_RULES, "prometheus-cdi-rules")["spec"]["groups"]
        names = {rule.get("alert") for group in rules for rule in group["rules"]} - {None}
        assert len(names) == 8
        await until(
            lambda: (
                {message for reason, message in operator.events() if "ensured" in message}
                == {
                    "Successfully ensured SecurityContextConstraint exists",
                    "Successfully ensured volume populators exist",
                    "Successfully ensured upload proxy route exists",
                }
            )
        )


async def test_a_settled_installation_is_left_alone() -> None:
    async with running(kinds=OPTIONAL) as operator:
        operator.put(GATES)
        await operator.deploy()
        await until(lambda: _value(operator) == 1)
        server = operator.server
        # The first pass may still begin with what was there before the last one ended.
        for look in ("again", "once more"):
            server.requests.clear()
            operator.put(GATES, annotations={**meta.annotations(operator.cdi()), "look": look})
            # Each pass ends with looking at Routes, twice.
            await until(lambda: sum(each.path.endswith("/routes") for each in server.requests) >= 2)
        writes = [
            (each.method, each.path)
            for each in server.requests
            if each.method != "GET" and "/events" not in each.path
        ]
        assert writes == []
