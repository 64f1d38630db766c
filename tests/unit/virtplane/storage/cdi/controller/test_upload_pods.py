"""Upload servers' pods, services and secrets."""

from __future__ import annotations

import pytest
from tests.support.cdi_claims import claim

from virtplane.api.meta_v1 import ObjectMeta
from virtplane.storage.cdi.controller.pods.upload import (
    Upload,
    certificate_secret,
    upload_pod,
    upload_service,
)
from virtplane.storage.cdi.controller.pods.worker import Workers

WORKERS = Workers("importer:1", "cloner:1", "uploadserver:1", recommended_labels={"a": "b"})
WANTED = Upload(overhead="0.06", deadline="2026-01-01T00:00:00+00:00")


def test_server_has_its_certificate_the_volume_and_scratch_space() -> None:
    pod = upload_pod(WORKERS, claim(), WANTED)
    container = pod["spec"]["containers"][0]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/data", "/etc/tls/", "/scratch"]
    found = {each["name"]: each.get("value", "") for each in container["env"]}
    assert (found["CLIENT_NAME"], found["UPLOAD_IMAGE_SIZE"], found["DEADLINE"]) == (
        "client.upload-server.cdi.kubevirt.io",
        "1Gi",
        "2026-01-01T00:00:00+00:00",
    )
    assert "DESTINATION" not in found
    assert pod["metadata"]["labels"]["cdi.kubevirt.io/uploadTarget"] == "1"


def test_device_is_the_destination() -> None:
    pod = upload_pod(WORKERS, claim(mode="Block"), WANTED)
    container = pod["spec"]["containers"][0]
    assert {"name": "DESTINATION", "value": "/dev/cdi-block-volume"} in container["env"]
    assert pod["spec"]["securityContext"]["fsGroup"] == 107


def test_target_of_a_clone_has_no_scratch_space_and_its_own_client() -> None:
    wanted = Upload(overhead="0", deadline="", client="a/b-c/d", has_scratch=False)
    pod = upload_pod(WORKERS, claim(), wanted)
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["tls-config", "cdi-data-vol"]
    assert {"name": "CLIENT_NAME", "value": "a/b-c/d"} in pod["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("name", ["dv", "a.b", "n" * 200])
def test_service_finds_the_pod_of_the_claim(name: str) -> None:
    found = claim(name)
    service, pod = upload_service(WORKERS, found), upload_pod(WORKERS, found, WANTED)
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert len(service["metadata"]["name"]) <= 63
    assert service["spec"]["clusterIP"] == "None"
    assert pod["spec"]["volumes"][0]["secret"]["secretName"] == pod["metadata"]["name"]


def test_service_goes_with_the_claim() -> None:
    assert upload_service(WORKERS, claim())["metadata"]["ownerReferences"][0]["uid"] == "1"


def test_certificate_goes_with_its_pod() -> None:
    pod = ObjectMeta(name="cdi-upload-dv", namespace="ns", uid="7")
    secret = certificate_secret(WORKERS, pod, {"tls.crt": "eA=="})
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], secret["metadata"]["name"]) == ("Pod", "7", "cdi-upload-dv")
