"""Importer pods: what each source gets, and when scratch space is known to be needed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import PRIME_KIND, claim
from tests.support.cdi_operator import SETTINGS

from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.cdi_config import ImportProxy
from virtplane.operators.cdi.extras import constraints
from virtplane.operators.cdi.product import Parameters
from virtplane.storage.cdi.controller.pods.importer import (
    Import,
    importer_pod,
    is_image_stream,
    needs_scratch,
    pod_name,
)
from virtplane.storage.cdi.controller.pods.worker import Workers

WORKERS = Workers("importer:1", "cloner:1", "uploadserver:1", insecure_registries=frozenset({"reg:5000"}))


def made(annotations: dict[str, str], mode: str = "Filesystem", **wanted: Any) -> dict[str, Any]:
    found = claim(annotations=annotations, mode=mode)
    return importer_pod(WORKERS, found, Import(target=found, overhead="0.06", **wanted))


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    found = pod["spec"]["containers"][0]["env"]
    return {each["name"]: each.get("value", each.get("valueFrom", "")) for each in found}


def mounts(pod: dict[str, Any], container: int = 0) -> dict[str, str]:
    found = pod["spec"]["containers"][container].get("volumeMounts", [])
    return {each["mountPath"]: each["name"] for each in found}


@pytest.mark.feature("STO-46")
def test_web_server_gets_credentials_certificates_and_headers() -> None:
    pod = made(
        {
            "import.source": "http",
            "import.endpoint": "https://files.example/x",
            "import.secretName": "creds",
            "import.certConfigMap": "certs",
            "import.extraHeaders.0": "X-One: 1",
            "import.extraHeaders.1": "X-Two: 2",
            "import.secretExtraHeaders.0": "hdr",
            "import.checksum": "md5:a",
            "import.insecureSkipVerify": "true",
            "preallocation.requested": "true",
        }
    )
    found = environment(pod)
    assert found["IMPORTER_ENDPOINT"] == "https://files.example/x"
    assert found["IMPORTER_SECRET_KEY"] == {"secretKeyRef": {"name": "creds", "key": "secretKey"}}
    assert (found["IMPORTER_EXTRA_HEADER_0"], found["IMPORTER_EXTRA_HEADER_1"]) == ("X-One: 1", "X-Two: 2")
    assert (found["IMPORTER_CHECKSUM"], found["INSECURE_TLS"], found["PREALLOCATION"]) == (
        "md5:a",
        "true",
        "true",
    )
    assert mounts(pod) == {
        "/data": "cdi-data-vol",
        "/certs": "cdi-cert-vol",
        "/extraheaders/0": "cdi-secret-extra-headers-vol-0",
    }


def test_google_credentials_are_a_file() -> None:
    pod = made({"import.source": "gcs", "import.endpoint": "gs://b/o", "import.secretName": "creds"})
    assert environment(pod)["GOOGLE_APPLICATION_CREDENTIALS"] == "/google/credentials.json"
    assert "IMPORTER_ACCESS_KEY_ID" not in environment(pod)
    assert mounts(pod)["/google"] == "cdi-secret-vol"


def test_source_that_nobody_knows_is_a_web_server() -> None:
    found = environment(made({"import.source": "ftp", "contentType": "odd"}))
    assert (found["IMPORTER_SOURCE"], found["IMPORTER_CONTENTTYPE"]) == ("http", "kubevirt")


@pytest.mark.parametrize(
    ("endpoint", "insecure"),
    [
        ("docker://reg:5000/disk:1", "true"),
        ("docker://reg:5001/disk:1", "false"),
        ("docker://reg:5000.evil/x", "false"),
    ],
)
def test_only_listed_registries_are_insecure(endpoint: str, insecure: str) -> None:
    pod = made({"import.source": "registry", "import.endpoint": endpoint})
    assert environment(pod)["INSECURE_TLS"] == insecure


NODE_PULL = {
    "import.source": "registry",
    "import.endpoint": "docker://registry.example/disk:1",
    "import.registryImportMethod": "node",
    "import.registryImageArchitecture": "arm64",
}


def test_node_pulls_the_image_whose_disk_the_importer_asks_for() -> None:
    pod = made(NODE_PULL)
    found = environment(pod)
    assert (found["IMPORTER_SOURCE"], found["IMPORTER_ENDPOINT"]) == (
        "http",
        "http://localhost:8100/disk.img",
    )
    assert (found["IMPORTER_READY_FILE"], found["IMPORTER_DONE_FILE"]) == ("/shared/ready", "/shared/done")
    assert pod["spec"]["containers"][1]["image"] == "registry.example/disk:1"
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert mounts(pod, 1) == {"/shared": "shared-volume"}
    assert pod["spec"]["initContainers"][0]["image"] == "importer:1"


def test_pod_of_an_image_stream_has_no_owner() -> None:
    stream = {**NODE_PULL, "import.endpoint": "stream", "import.registryImageStream": "true"}
    pod = made(stream)
    assert is_image_stream(claim(annotations=stream))
    assert "ownerReferences" not in pod["metadata"]
    assert pod["metadata"]["annotations"]["alpha.image.policy.openshift.io/resolve-names"] == "*"


def test_vddk_comes_from_its_own_image() -> None:
    pod = made(
        {"import.source": "vddk", "pod.vddk.extraargs": "args", "import.uuid": "4203"},
        vddk_image="vddk:1",
        vddk_node_selector={"disk": "near"},
    )
    assert pod["spec"]["initContainers"][0]["image"] == "vddk:1"
    assert mounts(pod)["/vddk-args"] == "vddk-extra-args"
    assert pod["spec"]["nodeSelector"] == {"disk": "near"}
    assert environment(pod)["IMPORTER_UUID"] == "4203"


def test_device_needs_no_group_and_an_empty_disk_no_endpoint() -> None:
    pod = made({"import.source": "none"}, "Block")
    assert pod["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["spec"]["containers"][0]["volumeDevices"][0]["devicePath"] == "/dev/cdi-block-volume"
    assert environment(pod)["IMPORTER_ENDPOINT"] == ""
    with_scratch = made({"import.source": "registry"}, "Block", has_scratch=True)
    assert with_scratch["spec"]["securityContext"]["fsGroup"] == 107


def test_proxy_and_its_authorities_are_passed_on() -> None:
    proxy = ImportProxy(
        http_proxy="http://p:1", https_proxy="http://p:2", no_proxy="x", trusted_ca_proxy="ca"
    )
    pod = made({"import.source": "http"}, proxy=proxy)
    found = environment(pod)
    assert (found["http_proxy"], found["https_proxy"], found["no_proxy"]) == ("http://p:1", "http://p:2", "x")
    assert mounts(pod)["/proxycerts/"] == "cdi-proxy-cert-vol"


def test_pod_has_the_labels_of_the_claim_that_was_asked_for_but_its_own_identity() -> None:
    target = claim(uid="t", labels={"x": "y", "app": "mine", "cdi.kubevirt.io": "else"})
    prime = claim("prime-t", annotations={"import.source": "http", **PRIME_KIND})
    pod = importer_pod(WORKERS, prime, Import(target=target, overhead="0"))
    labels = pod["metadata"]["labels"]
    assert (labels["x"], labels["app"], labels["cdi.kubevirt.io"]) == ("y", "mine", "importer")
    assert environment(pod)["OWNER_UID"] == "t"
    assert pod["metadata"]["name"] == "importer-prime-t"


@pytest.mark.feature("STO-58")
@pytest.mark.parametrize(
    ("annotations", "scratch"),
    [
        ({"import.source": "http"}, False),
        ({"import.source": "http", "import.requiresScratch": "true"}, True),
        ({"import.source": "http", "contentType": "archive"}, True),
        ({"import.source": "registry"}, True),
        (NODE_PULL, False),
        ({"import.source": "imageio"}, False),
        ({"import.source": "imageio", "checkpoint.current": "c"}, True),
        ({"import.source": "vddk", "checkpoint.current": "c"}, False),
        ({"import.source": "glance"}, True),
    ],
)
def test_scratch_space_is_given_up_front_where_it_is_sure_to_be_needed(
    annotations: dict[str, str], scratch: bool
) -> None:
    assert needs_scratch(claim(annotations=annotations)) is scratch


def test_each_checkpoint_has_its_own_pod() -> None:
    assert pod_name(claim(annotations={"checkpoint.current": "c"})) == "importer-dv-checkpoint-c"


@pytest.mark.parametrize(
    "source",
    [
        {"import.source": "http", "import.secretName": "creds", "import.certConfigMap": "certs"},
        {"import.source": "gcs", "import.secretName": "creds"},
        {"import.source": "registry", "import.registryImportMethod": "node"},
        {"import.source": "vddk", "import.secretName": "creds"},
    ],
)
@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_pod_is_allowed_by_the_constraints_that_the_operator_makes_on_openshift(
    source: dict[str, str], mode: str
) -> None:
    """They count for who creates the pod, cdi-sa; the ranges of the namespace (restricted) have no 107."""
    allowed = constraints(Parameters(SETTINGS, CDI()))
    spec = made({"import.endpoint": "docker://r/x", **source}, mode, has_scratch=True, vddk_image="vddk:1")[
        "spec"
    ]
    assert "system:serviceaccount:cdi:cdi-sa" in allowed["users"]
    assert allowed["runAsUser"] == {"type": "MustRunAsNonRoot"}
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    for volume in spec["volumes"]:
        assert volume.keys() - {"name"} <= set(allowed["volumes"])
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        security = container["securityContext"]
        assert (security["runAsUser"], security["runAsNonRoot"]) == (107, True)
        assert security["capabilities"] == {"drop": allowed["requiredDropCapabilities"]}
        assert not security["allowPrivilegeEscalation"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
