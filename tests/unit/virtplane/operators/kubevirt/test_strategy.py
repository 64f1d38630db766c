"""The objects of an installation."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from virtplane.api import paths
from virtplane.api.config import ClusterConfig
from virtplane.components import CDI_COMPONENTS, COMPONENTS
from virtplane.compute.apiserver.webhooks import PATHS
from virtplane.operators.hostpath import manifests as hostpath
from virtplane.operators.hostpath.product import Settings as HostPathSettings
from virtplane.operators.hostpath.rights import accounts
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kubevirt import manifests
from virtplane.operators.kubevirt.strategy.components import INSTALLED
from virtplane.operators.kubevirt.strategy.installation import installation
from virtplane.operators.kubevirt.strategy.operator_roles import operator_objects
from virtplane.operators.kubevirt.strategy.parameters import Layout, Parameters
from virtplane.operators.kubevirt.strategy.webhooks import MUTATORS, POD_MUTATORS, VALIDATORS
from virtplane.run import parse

ROOT = Path(os.environ["VIRTPLANE_REFERENCE"]) if "VIRTPLANE_REFERENCE" in os.environ else None


def _accounts() -> list[JsonObject]:
    return [each for component in INSTALLED for each in component.access("kubevirt")]


def rendered(layout: Layout = "distributed", nodes: int = 3, **spec: object) -> Installation:
    kubevirt = {"spec": dict(spec), "status": {"phase": "Deployed"}}
    config = ClusterConfig(kubevirt)
    return installation(
        Parameters("kubevirt", "registry.test/virtplane:1", layout, config, "PEM", dict(spec), nodes)
    )


def named(documents: tuple[JsonObject, ...], kind: str, name: str) -> JsonObject:
    return next(d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name)


def test_each_component_has_a_workload_of_its_own_when_distributed() -> None:
    kinds = [(d["kind"], d["metadata"]["name"]) for d in rendered().components]
    assert ("Deployment", "virt-api") in kinds
    assert ("Deployment", "virt-controller") in kinds
    assert ("DaemonSet", "virt-handler") in kinds
    assert ("PodDisruptionBudget", "virt-api-pdb") in kinds


def test_every_pod_of_the_distributed_layout_shows_its_metrics_at_one_port() -> None:
    # so that their service has one slice of endpoints for each family of addresses
    operator = manifests.install_objects(manifests.InstallOptions("kubevirt", "image"))[-1]
    components = rendered().components
    pods = [d["spec"]["template"] for d in (operator, *components) if "template" in d["spec"]]
    names = {pod["metadata"]["labels"]["kubevirt.io"] for pod in pods}
    found = {
        port["containerPort"]
        for pod in pods
        for port in pod["spec"]["containers"][0]["ports"]
        if port["name"] == "metrics"
    }
    assert names == {"virt-operator", "virt-api", "virt-controller", "virt-handler"}
    assert found == {8443}


@pytest.mark.parametrize("layout", ["compact", "distributed"])
def test_the_operator_serves_its_health_where_the_kubelet_asks_for_it(layout: Layout) -> None:
    operator = manifests.install_objects(manifests.InstallOptions("kubevirt", "image", layout))[-1]
    container = operator["spec"]["template"]["spec"]["containers"][0]
    options = parse([container["command"][2], *container["args"]])
    assert container["readinessProbe"]["httpGet"]["port"] == options.health_port
    assert options.health_port in [port["containerPort"] for port in container["ports"]]


def test_objects_and_pods_tell_which_installation_they_are_of() -> None:
    marks = {"kubevirt.io/install-strategy-identifier": "id"}
    found = installation(
        Parameters("kubevirt", "image", "distributed", ClusterConfig({}), marks=marks, generation=7)
    )
    deployment = named(found.components, "Deployment", "virt-controller")
    assert deployment["metadata"]["annotations"] == marks | {"kubevirt.io/generation": "7"}
    # a change of the settings alone replaces no pod
    assert deployment["spec"]["template"]["metadata"]["annotations"] == marks
    for document in (*found.foundation, *found.entry, *found.content):
        annotations = document["metadata"]["annotations"]
        assert annotations["kubevirt.io/install-strategy-identifier"] == "id"
        assert "kubevirt.io/generation" not in annotations


@pytest.mark.parametrize(("layout", "replicas"), [("compact", 1), ("distributed", 2)])
def test_two_operators_keep_apart_in_the_distributed_layout(layout: Layout, replicas: int) -> None:
    operator = manifests.install_objects(manifests.InstallOptions("kubevirt", "image", layout))[-1]
    assert operator["spec"]["replicas"] == replicas
    assert ("affinity" in operator["spec"]["template"]["spec"]) == (replicas > 1)


def test_the_control_plane_is_the_operator_in_the_compact_layout() -> None:
    found = rendered("compact")
    assert [d["kind"] for d in found.components] == ["DaemonSet"]
    service = named(found.foundation, "Service", "virt-api")
    assert service["spec"]["selector"] == {"kubevirt.io": "virt-operator"}
    operator = manifests.install_objects(manifests.InstallOptions("kubevirt", "image", "compact"))[-1]
    command = operator["spec"]["template"]["spec"]["containers"][0]["command"]
    names = "virt-operator,virt-api,virt-controller,hostpath-provisioner-operator,snapshot-controller"
    names += ",cdi-operator"
    assert command == ["virtplane", "run", names]


def test_only_what_acts_on_nodes_is_root() -> None:
    # whatever user the image has
    named_users = {
        d["metadata"]["name"]: d["spec"]["template"]["spec"].get("securityContext", {}).get("runAsUser")
        for d in rendered().components
        if d["kind"] in ("Deployment", "DaemonSet")
    }
    assert named_users == {"virt-api": 1001, "virt-controller": 1001, "virt-handler": None}
    pod = named(rendered().components, "DaemonSet", "virt-handler")["spec"]["template"]["spec"]
    assert [each["securityContext"]["runAsUser"] for each in pod["containers"]] == [0]
    layouts: tuple[Layout, ...] = ("compact", "distributed")
    for layout in layouts:
        operator = manifests.install_objects(manifests.InstallOptions("kubevirt", "image", layout))[-1]
        context = operator["spec"]["template"]["spec"]["securityContext"]
        assert context == {"runAsNonRoot": True, "runAsUser": 1001}


def test_virt_handler_has_the_node_s_cgroups_beside_its_own() -> None:
    pod = named(rendered().components, "DaemonSet", "virt-handler")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "cgroup")
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "cgroup")
    assert volume["hostPath"] == {"path": "/sys/fs/cgroup", "type": "Directory"}
    assert mount["mountPath"] == "/var/run/kubevirt-cgroup"


def test_virt_handler_can_set_what_the_node_s_kernel_offers_below_sys() -> None:
    # its own /sys is read-only where the runtime mounted it so for the pod's sandbox before
    pod = named(rendered().components, "DaemonSet", "virt-handler")["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if each["name"] == "sys")
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "sys")
    assert volume["hostPath"] == {"path": "/sys", "type": "Directory"}
    assert mount["mountPath"] == paths.NODE_SYSFS
    assert "readOnly" not in mount


def test_virt_handler_mounts_the_kubelet_s_root_where_it_looks_for_it() -> None:
    parameters = Parameters(
        "kubevirt", "image", "distributed", ClusterConfig({}), kubelet_root="/var/lib/k0s/kubelet"
    )
    handler = named(installation(parameters).components, "DaemonSet", "virt-handler")
    pod = handler["spec"]["template"]["spec"]
    volume = next(each for each in pod["volumes"] if each["name"] == "kubelet")
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "kubelet")
    assert volume["hostPath"]["path"] == "/var/lib/k0s/kubelet"
    assert (mount["mountPath"], mount["mountPropagation"]) == ("/var/lib/kubelet", "Bidirectional")


def test_the_helper_for_reservations_runs_beside_virt_handler_where_they_are_allowed() -> None:
    def containers(**configuration: object) -> list[JsonObject]:
        handler = named(rendered(configuration=configuration).components, "DaemonSet", "virt-handler")
        found: list[JsonObject] = handler["spec"]["template"]["spec"]["containers"]
        return found

    assert [each["name"] for each in containers()] == ["virt-handler"]
    _, helper = containers(persistentReservationConfiguration={"enabled": True})
    assert helper["name"] == "pr-helper"
    assert helper["command"][-1].endswith("qemu-pr-helper -k /var/run/kubevirt/daemons/pr/pr-helper.sock")
    assert helper["securityContext"]["capabilities"]["drop"] == ["ALL"]
    (mount,) = helper["volumeMounts"]
    assert mount["mountPath"] == "/var/run/kubevirt/daemons/pr"


def test_webhooks_insist_on_a_certificate_only_where_the_api_server_shows_one() -> None:
    flag = "--require-webhook-certificate"

    def arguments(workload: JsonObject) -> list[str]:
        found: list[str] = workload["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    for is_required in (True, False):
        operator = manifests.install_objects(
            manifests.InstallOptions("ns", "i", "compact", require_webhook_certificate=is_required)
        )
        assert (flag in arguments(operator[-1])) is is_required
        parameters = Parameters(
            "ns", "i", "distributed", ClusterConfig(None), require_webhook_certificate=is_required
        )
        api = named(installation(parameters).components, "Deployment", "virt-api")
        assert (flag in arguments(api)) is is_required


@pytest.mark.parametrize("image", ["", "r.test/guestfs:1"])
def test_the_operator_knows_the_image_of_guestfs_by_its_environment(image: str) -> None:
    options = manifests.InstallOptions("ns", "i", "compact", guestfs_image=image)
    operator = manifests.install_objects(options)[-1]
    environment = operator["spec"]["template"]["spec"]["containers"][0]["env"]
    found = [each["value"] for each in environment if each["name"] == "GS_IMAGE"]
    assert found == ([image] if image else [])


@pytest.mark.parametrize("image", ["", "r.test/sidecar-shim:1"])
def test_virt_controller_alone_is_told_the_image_of_sidecars(image: str) -> None:
    parameters = Parameters("ns", "i", "distributed", ClusterConfig(None), sidecar_image=image)
    told: dict[str, list[str]] = {}
    for each in installation(parameters).components:
        if each["kind"] in ("Deployment", "DaemonSet"):
            environment = each["spec"]["template"]["spec"]["containers"][0]["env"]
            found = [entry["value"] for entry in environment if entry["name"] == "SIDECAR_SHIM_IMAGE"]
            told[each["metadata"]["name"]] = found
    assert told.pop("virt-controller") == ([image] if image else [])
    assert "virt-handler" in told
    assert not any(told.values())


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 1), (2, 2), (50, 5)])
def test_virt_api_grows_with_the_cluster(nodes: int, replicas: int) -> None:
    assert named(rendered(nodes=nodes).components, "Deployment", "virt-api")["spec"]["replicas"] == replicas


def test_replicas_and_placement_follow_the_object() -> None:
    infra = {
        "replicas": 3,
        "nodePlacement": {"nodeSelector": {"role": "infra"}, "tolerations": [{"key": "infra"}]},
    }
    deployment = named(rendered(infra=infra).components, "Deployment", "virt-controller")
    pod = deployment["spec"]["template"]["spec"]
    assert deployment["spec"]["replicas"] == 3
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "role": "infra"}
    assert {"key": "infra"} in pod["tolerations"]


def test_roles_stay_apart_from_the_clusters_when_asked() -> None:
    spec: dict[str, Any] = {"configuration": {"roleAggregationStrategy": "Manual"}}
    role = named(rendered(**spec).foundation, "ClusterRole", "kubevirt.io:admin")
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "false"


@pytest.mark.feature("INS-45")
def test_common_instance_types_can_be_left_out() -> None:
    assert rendered().content
    spec: dict[str, Any] = {"configuration": {"commonInstancetypesDeployment": {"enabled": False}}}
    assert not rendered(**spec).content


def test_every_installed_webhook_is_answered() -> None:
    assert {webhook.path for webhook in (*VALIDATORS, *MUTATORS, *POD_MUTATORS)} == set(PATHS)


def test_launchers_are_changed_only_while_folders_of_theirs_may_be_shared() -> None:
    kind, name = "MutatingWebhookConfiguration", "virt-launcher-pod-mutator"
    named(rendered().withdrawn, kind, name)
    gates = {"developerConfiguration": {"featureGates": ["ContainerPathVolumes"]}}
    (webhook,) = named(rendered(configuration=gates).entry, kind, name)["webhooks"]
    assert webhook["objectSelector"] == {"matchLabels": {"kubevirt.io": "virt-launcher"}}
    assert (webhook["failurePolicy"], webhook["reinvocationPolicy"]) == ("Ignore", "IfNeeded")


def test_evicting_the_only_control_plane_is_asked_about_and_never_held_up_by_its_absence() -> None:
    def webhooks(layout: Layout) -> dict[str, JsonObject]:
        configuration = named(rendered(layout).entry, "ValidatingWebhookConfiguration", "virt-api-validator")
        return {webhook["name"]: webhook for webhook in configuration["webhooks"]}

    own = webhooks("compact").keys() - webhooks("distributed").keys()
    assert own == {"virt-operator-eviction-interceptor.virtplane.io"}
    webhook = webhooks("compact")[own.pop()]
    assert webhook["failurePolicy"] == "Ignore"
    condition = 'object.metadata.name.startsWith("virt-operator-") && request.namespace == "kubevirt"'
    assert webhook["matchConditions"] == [{"name": "only-operator", "expression": condition}]
    assert all(each["failurePolicy"] == "Fail" for each in webhooks("distributed").values())


_TOKENS = {"developerConfiguration": {"featureGates": ["DeployVmConsoleProxy"]}}


@pytest.mark.feature("ACC-07", "ACC-12")
@pytest.mark.parametrize("layout", ["compact", "distributed"])
def test_tokens_for_displays_are_offered_by_virt_api_where_the_gate_says(layout: Layout) -> None:
    found = rendered(layout, configuration=_TOKENS)
    for version in ("v1", "v1alpha1"):
        service = named(found.entry, "APIService", f"{version}.token.kubevirt.io")
        assert service["spec"]["service"] == {"name": "virt-api", "namespace": "kubevirt", "port": 443}
        assert service["spec"]["caBundle"]
    role = named(found.entry, "ClusterRole", "token.kubevirt.io:generate")
    (rule,) = role["rules"]
    assert granted([rule]) == {("token.kubevirt.io", "virtualmachines/vnc", "get")}
    named(found.entry, "ServiceAccount", "vm-console-proxy")
    policy = named(found.entry, "ValidatingAdmissionPolicy", "kubevirt-vnc-access-policy")
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"].endswith('"system:serviceaccount:kubevirt:vm-console-proxy"')
    withdrawn = {document["metadata"]["name"] for document in found.withdrawn}
    assert "virt-launcher-pod-mutator" in withdrawn
    assert all(name.startswith("kubevirt-plugin-") for name in withdrawn - {"virt-launcher-pod-mutator"})
    # No process of its own.
    assert [d["metadata"]["name"] for d in found.components] == [
        d["metadata"]["name"] for d in rendered(layout).components
    ]


def test_the_operator_may_act_as_the_issuer_of_tokens_in_the_compact_layout() -> None:
    role = named(tuple(operator_objects("kubevirt")), "ClusterRole", "kubevirt-operator")
    named_accounts = [
        name
        for rule in role["rules"]
        if "impersonate" in rule["verbs"] and "serviceaccounts" in rule["resources"]
        for name in rule["resourceNames"]
    ]
    assert "vm-console-proxy" in named_accounts


@pytest.mark.feature("ACC-07")
def test_nothing_is_left_of_tokens_where_the_gate_is_closed_again() -> None:
    on, off = rendered(configuration=_TOKENS), rendered()

    def identities(documents: tuple[JsonObject, ...]) -> set[tuple[str, str]]:
        return {(d["kind"], d["metadata"]["name"]) for d in documents}

    assert identities(on.entry) - identities(off.entry) == identities(off.withdrawn) - identities(
        on.withdrawn
    )
    assert not identities(off.withdrawn) & identities((*off.foundation, *off.components, *off.entry))


def test_everything_carries_the_operators_label() -> None:
    found = rendered(configuration=_TOKENS)
    for document in (*found.foundation, *found.components, *found.entry, *found.content):
        assert document["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "virt-operator"


def granted(rules: list[JsonObject]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        if not rule.get("resourceNames") and "nonResourceURLs" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def holds(rights: set[tuple[str, str, str]], wanted: tuple[str, str, str]) -> bool:
    group, resource, verb = wanted
    return any(
        own_group in (group, "*") and own_resource in (resource, "*") and own_verb in (verb, "*")
        for own_group, own_resource, own_verb in rights
    )


def test_the_operator_holds_every_right_that_it_grants() -> None:
    own: set[tuple[str, str, str]] = set()
    exact: list[JsonObject] = []
    for document in operator_objects("kubevirt"):
        if document["kind"] in ("ClusterRole", "Role"):
            own |= granted(document["rules"])
            exact += document["rules"]
    tokens = rendered(configuration=_TOKENS).entry
    for document in (*_accounts(), *rendered().foundation, *tokens):
        if document["kind"] in ("ClusterRole", "Role"):
            missing = [right for right in granted(document["rules"]) if not holds(own, right)]
            assert missing == [], document["metadata"]["name"]
            on_names = [rule for rule in document["rules"] if rule.get("resourceNames")]
            assert [rule for rule in on_names if rule not in exact and not _holds_all(own, rule)] == []


def test_a_node_that_is_taken_over_reads_no_data_of_users() -> None:
    role = named(tuple(_accounts()), "ClusterRole", "kubevirt-handler")
    read = {resource for _, resource, verb in granted(role["rules"]) if verb in ("get", "list", "watch", "*")}
    assert not read & {"configmaps", "secrets", "pods", "persistentvolumeclaims", "*"}


def _holds_all(rights: set[tuple[str, str, str]], rule: JsonObject) -> bool:
    """Whether rights on objects of any name include a rule on some."""
    of_all = granted([{**rule, "resourceNames": []}])
    return all(holds(rights, right) for right in of_all)


@pytest.mark.parametrize(
    ("spec", "subjects"),
    [
        ({}, [("openshift-monitoring", "prometheus-k8s"), ("monitoring", "prometheus-k8s")]),
        ({"monitorNamespace": "mon", "monitorAccount": "prom"}, [("mon", "prom")]),
    ],
)
def test_metrics_are_for_the_account_of_prometheus(
    spec: dict[str, Any], subjects: list[tuple[str, str]]
) -> None:
    found = rendered(**spec).foundation
    role = named(found, "ClusterRole", "kubevirt-metrics-reader")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    binding = named(found, "ClusterRoleBinding", "kubevirt-metrics-reader")
    assert [(each["namespace"], each["name"]) for each in binding["subjects"]] == subjects
    assert (
        role["rules"][0]
        in named(tuple(operator_objects("kubevirt")), "ClusterRole", "kubevirt-operator")["rules"]
    )


_CDI = ("cdi-operator", *CDI_COMPONENTS)
"""What cdi-operator installs, and what installs it, is tested with it."""


def test_every_component_may_ask_who_reads_its_metrics() -> None:
    bindings = [
        document
        for document in (*_accounts(), *operator_objects("kubevirt"), *_hostpath())
        if document["kind"] == "ClusterRoleBinding" and document["roleRef"]["name"] == "system:auth-delegator"
    ]
    asking = {subject["name"] for document in bindings for subject in document["subjects"]}
    # The legacy hostpath provisioner has no metrics, and upstream's rights.
    serving = {
        entry.service_account
        for name, entry in COMPONENTS.items()
        if name != "hostpath-provisioner" and name not in _CDI
    }
    assert serving <= asking


def _hostpath() -> list[JsonObject]:
    settings = HostPathSettings("kubevirt", "image", "compact", "v1")
    return [*hostpath.install_objects(settings), *accounts(settings, legacy=True)]


def test_tokens_for_metrics_travel_encrypted() -> None:
    for workload in rendered().components:
        if workload["kind"] in ("Deployment", "DaemonSet"):
            (container,) = workload["spec"]["template"]["spec"]["containers"]
            for probe in ("livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_every_component_acts_under_an_account_that_is_installed() -> None:
    objects = (*_accounts(), *operator_objects("kubevirt"), *_hostpath())
    installed = {d["metadata"]["name"] for d in objects if d["kind"] == "ServiceAccount"}
    assert {entry.service_account for name, entry in COMPONENTS.items() if name not in _CDI} <= installed


@pytest.mark.feature("INS-49")
@pytest.mark.skipif(ROOT is None, reason="VIRTPLANE_REFERENCE names no directory with recordings")
@pytest.mark.parametrize("name", ["admin", "view", "default"])
def test_roles_equal_the_recorded_ones(name: str) -> None:
    assert ROOT
    path = ROOT / f"conformance/cases-kubevirt/rbac/role-kubevirt-io-{name}.json"
    body = json.loads(path.read_text())["steps"][0]["expect"]["body"]
    ours = named(rendered().foundation, "ClusterRole", f"kubevirt.io:{name}")
    assert granted(ours["rules"]) == granted(body["rules"])
