"""The pods that send the sources of clones."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, claim

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.core_v1 import NodePlacement
from virtplane.storage.cdi.controller.clones.sources import CloneError
from virtplane.storage.cdi.controller.pods import cloner
from virtplane.storage.cdi.controller.pods.cloner import Copy
from virtplane.storage.cdi.controller.pods.worker import Workers
from virtplane.storage.cdi.controller.workers import copies
from virtplane.storage.cdi.rendering import Storage

WORKERS = Workers("importer:1", "cloner:1", "uploadserver:1")


def _pod(source: Any = None, target: Any = None, workers: Workers = WORKERS) -> JsonObject:
    return cloner.source_pod(workers, Copy(source or claim("src", "s"), target or claim("dv", "t"), "PEM"))


def test_file_system_is_mounted_for_reading_only() -> None:
    (container,) = _pod()["spec"]["containers"]
    (mount,) = container["volumeMounts"]
    assert mount == {"name": "cdi-data-vol", "mountPath": "/var/run/cdi/clone/source", "readOnly": True}
    environment = {each["name"]: each for each in container["env"]}
    assert environment["MOUNT_POINT"]["value"] == mount["mountPath"]
    assert environment["CLIENT_KEY"]["valueFrom"] == {
        "secretKeyRef": {"name": "t-source-pod", "key": "tls.key"}
    }
    assert environment["SERVER_CA_CERT"]["value"] == "PEM"


def test_pod_is_near_to_its_server_and_to_other_readers_of_its_volume() -> None:
    affinity = _pod()["spec"]["affinity"]["podAffinity"]
    (required,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert required["labelSelector"]["matchExpressions"][0]["values"] == ["s"]
    assert preferred["podAffinityTerm"]["labelSelector"]["matchExpressions"][0]["values"] == ["t"]
    assert preferred["podAffinityTerm"]["namespaces"] == ["ns"]


def test_placement_of_the_installation_is_kept() -> None:
    required: JsonObject = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    zone = {"nodeAffinity": required}
    placement = decode(NodePlacement, {"affinity": zone, "nodeSelector": {"a": "b"}})
    spec = _pod(workers=Workers("i", "c", "u", placement=placement))["spec"]
    assert spec["nodeSelector"] == {"a": "b"}
    assert set(spec["affinity"]) == {"nodeAffinity", "podAffinity"}


def test_networks_and_accounts_of_the_target_are_those_of_its_own_namespace() -> None:
    wishes = {"k8s.v1.cni.cncf.io/networks": "net", f"{STORAGE}pod.serviceAccountName": "admin"}
    target = claim("dv", "t", annotations=wishes)
    at_home = _pod(target=target)
    assert at_home["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "net"
    abroad = _pod(claim("src", "s", namespace="images"), target)
    assert abroad["metadata"]["namespace"] == "images"
    assert "k8s.v1.cni.cncf.io/networks" not in abroad["metadata"]["annotations"]
    assert abroad["metadata"]["annotations"][f"{STORAGE}ownerRef"] == "ns/dv"
    assert "serviceAccountName" not in abroad["spec"]


def test_names_of_clients_fit_into_certificates_and_differ() -> None:
    assert cloner.client_name("a", "src", claim("dv")) == "a/src-ns/dv"
    long = {cloner.client_name("a" * 63, f"src-{number}", claim("dv")) for number in range(3)}
    assert len(long) == 3
    assert all(len(name) <= 64 and "/" in name for name in long)


@pytest.mark.parametrize("text", ["", "src", "/src", "ns/", "a/b/c"])
def test_request_that_names_no_claim_is_none(text: str) -> None:
    assert cloner.requested_source(claim(annotations={"k8s.io/CloneRequest": text})) is None


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ({}, {}, ""),
        ({"annotations": {"contentType": "archive"}}, {}, "contentType"),
        (
            {"annotations": {"contentType": "archive"}},
            {"annotations": {"contentType": "archive"}, "mode": "Block"},
            "volumeMode",
        ),
        ({"mode": "Block"}, {}, ""),
    ],
)
def test_what_is_copied_must_fit(source: dict[str, Any], target: dict[str, Any], problem: str) -> None:
    wanted = claim("src", **source), claim("dv", **target)
    if problem:
        with pytest.raises(CloneError, match=problem):
            copies.expect_fit(*wanted, Storage())
    else:
        copies.expect_fit(*wanted, Storage())
