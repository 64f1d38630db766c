"""What runs, and where."""

from __future__ import annotations

import pytest
from tests.support.bakery import BAKERY

from kubecore.json import JsonObject
from virtplane.operators.kit.workloads import (
    Workloads,
    add_pull_secrets,
    mount_secret,
    place,
    priority_class,
    probed,
)

MADE = Workloads(BAKERY, "bread", {"flour": "rye"})


def _pod() -> JsonObject:
    return {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    }


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_pods_carry_what_selects_them(kind: str) -> None:
    made = MADE.deployment("oven", 2, {}) if kind == "Deployment" else MADE.daemon_set("oven", {})
    assert made["kind"] == kind
    assert made["metadata"] == {"name": "oven", "namespace": "bread", "labels": {"bakery.example": "oven"}}
    assert made["spec"]["selector"] == {"matchLabels": {"bakery.example": "oven"}}
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {"bakery.example": "oven", "flour": "rye"}


def test_a_service_leads_to_the_selected_pods() -> None:
    service = MADE.service("shop", {"bakery.example": "counter"}, 8443)
    assert service["spec"]["selector"] == {"bakery.example": "counter"}
    assert service["spec"]["ports"] == [{"port": 443, "targetPort": 8443, "protocol": "TCP"}]
    assert MADE.service("shop", {}, "web", "web")["spec"]["ports"][0]["name"] == "web"


def test_all_replicas_but_one_stay_up_while_nodes_are_drained() -> None:
    budget = MADE.disruption_budget("oven", 3)
    assert budget["metadata"]["name"] == "oven-pdb"
    assert budget["spec"] == {
        "minAvailable": 2,
        "selector": {"matchLabels": {"bakery.example": "oven"}},
    }


def test_replicas_prefer_different_nodes() -> None:
    (preference,) = MADE.apart("oven")["preferredDuringSchedulingIgnoredDuringExecution"]
    term = preference["podAffinityTerm"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchExpressions"] == [
        {"key": "bakery.example", "operator": "In", "values": ["oven"]}
    ]


def test_what_users_say_about_nodes_is_added_to_what_components_need() -> None:
    pod = _pod()
    placement = {"nodeSelector": {"oven": "yes"}, "tolerations": [{"key": "hot"}], "affinity": {"a": {}}}
    place(pod, placement)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "oven": "yes"}
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["CriticalAddonsOnly", "hot"]
    pod["tolerations"].append({"key": "later"})
    pod["affinity"]["later"] = {}
    assert placement["tolerations"] == [{"key": "hot"}] and placement["affinity"] == {"a": {}}


def test_pods_without_pull_secrets_name_none() -> None:
    pod = _pod()
    add_pull_secrets(pod, [])
    assert "imagePullSecrets" not in pod
    add_pull_secrets(pod, [{"name": "key"}])
    assert pod["imagePullSecrets"] == [{"name": "key"}]


def test_a_pod_starts_before_its_certificates_are_there() -> None:
    container: JsonObject = {"volumeMounts": []}
    volumes: list[JsonObject] = []
    mount_secret(container, volumes, "oven-certs", "/etc/oven")
    assert volumes == [{"name": "oven-certs", "secret": {"secretName": "oven-certs", "optional": True}}]
    assert container["volumeMounts"] == [{"name": "oven-certs", "mountPath": "/etc/oven", "readOnly": True}]


def test_probes_ask_the_port_of_health_over_tls() -> None:
    container: JsonObject = {}
    probed(container, 8445)
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": 8445, "scheme": "HTTPS"}


def test_a_priority_class_belongs_to_the_product() -> None:
    made = priority_class(BAKERY, "bread-first", "Bread goes first.")
    assert made["metadata"] == {"name": "bread-first", "labels": {"bakery.example": ""}}
    assert (made["description"], made["globalDefault"]) == ("Bread goes first.", False)
