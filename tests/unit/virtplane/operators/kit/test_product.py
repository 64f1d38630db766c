"""How an operator marks what it installs."""

from __future__ import annotations

from tests.support.bakery import BAKERY

from kubecore.json import JsonObject
from virtplane.operators.kit.roles import Access, account_subject, rule


def test_objects_are_known_by_their_operator() -> None:
    document: JsonObject = {"kind": "Service", "metadata": {"name": "oven"}}
    BAKERY.mark_managed(document, {})
    assert document["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "bakery-operator",
        "app.kubernetes.io/component": "bread",
    }
    assert BAKERY.selector == "app.kubernetes.io/managed-by=bakery-operator"


def test_the_custom_resource_may_name_the_product_that_it_is_part_of() -> None:
    document: JsonObject = {"kind": "Service", "metadata": {"name": "oven", "labels": {"a": "b"}}}
    BAKERY.mark_managed(document, {"productComponent": "c", "productName": "n", "productVersion": "v"})
    assert document["metadata"]["labels"] == {
        "a": "b",
        "app.kubernetes.io/managed-by": "bakery-operator",
        "app.kubernetes.io/component": "c",
        "app.kubernetes.io/part-of": "n",
        "app.kubernetes.io/version": "v",
    }


def test_pods_are_known_by_their_operator_too() -> None:
    template: JsonObject = {"metadata": {"labels": {"a": "b"}}}
    document: JsonObject = {"kind": "DaemonSet", "metadata": {}, "spec": {"template": template}}
    BAKERY.mark_managed(document, {"productName": "n"}, {"bakery.example/release": "3"})
    assert template["metadata"] == {
        "labels": {
            "a": "b",
            "app.kubernetes.io/managed-by": "bakery-operator",
            "app.kubernetes.io/component": "bread",
            "app.kubernetes.io/part-of": "n",
        },
        "annotations": {"bakery.example/release": "3"},
    }
    assert document["metadata"]["annotations"] == {"bakery.example/release": "3"}


def test_names_that_no_label_can_hold_are_left_out() -> None:
    document: JsonObject = {"kind": "Service", "metadata": {"name": "oven"}}
    BAKERY.mark_managed(document, {"productComponent": "a b", "productName": "n" * 64, "productVersion": "-"})
    assert document["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "bakery-operator",
        "app.kubernetes.io/component": "bread",
    }


def test_a_component_gets_an_account_with_rights_in_the_cluster_and_its_namespace() -> None:
    wide, narrow = rule("core apps", "pods deployments", ("get",)), rule("core", "secrets", ("list",), ["s"])
    documents = Access(BAKERY).component("oven", "bread", [wide], [narrow])
    assert [(item["kind"], item["metadata"].get("namespace")) for item in documents] == [
        ("ServiceAccount", "bread"),
        ("ClusterRole", None),
        ("ClusterRoleBinding", None),
        ("Role", "bread"),
        ("RoleBinding", "bread"),
    ]
    assert all(item["metadata"]["labels"] == {"bakery.example": ""} for item in documents)
    assert documents[1]["rules"] == [
        {"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": ["get"]}
    ]
    assert documents[3]["rules"][0]["resourceNames"] == ["s"]
    assert documents[2]["subjects"] == documents[4]["subjects"] == [account_subject("oven", "bread")]
