"""``image-upload``: what is made, what is waited for, what is sent, and what is said."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kubecore.client import Client, ClientConfig
from virtplane.cli.virtctl.uploading import uploadclaims, uploadproxy
from virtplane.cli.virtctl.uploading.uploadclaims import Target

from .conftest import Result, Virtctl, running
from .uploads import CLAIMS, CONFIG, SOURCES, STORAGE, VOLUMES, CdiServer


@pytest.fixture
def api() -> Iterator[CdiServer]:
    server = CdiServer()
    with running(server):
        server.objects[CONFIG] = {"spec": {}, "status": {"uploadProxyURL": server.url}}
        server.objects["/apis/storage.k8s.io/v1/storageclasses/fast"] = {}
        yield server


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploadclaims, "POLL_SECONDS", 0)
    monkeypatch.setattr(uploadclaims, "PROCESSING_SECONDS", 3)
    monkeypatch.setattr(uploadproxy, "_LONGEST_PAUSE_SECONDS", 0)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image"
    path.write_bytes(b"hello world" * 1000)
    return path


def upload(virtctl: Virtctl, image: Path, line: str) -> Result:
    return virtctl("image-upload", *line.split(), "--image-path", str(image))


@pytest.mark.feature("CTL-43")
def test_upload_into_a_new_data_volume(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    result = upload(virtctl, image, "dv disk --size 1024Mi")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:3] == [
        "PVC default/disk not found ",
        "DataVolume default/disk created",
        f"Uploading data to {api.url}",
    ]
    assert lines[-3:] == [
        "Uploading data completed successfully, waiting for processing to complete,"
        " you can hit ctrl-c without interrupting the progress",
        "Processing completed successfully",
        f"Uploading {image} completed successfully",
    ]
    assert api.made(VOLUMES) == {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": "disk", "namespace": "default"},
        "spec": {
            "source": {"upload": {}},
            "contentType": "kubevirt",
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    }
    assert api.uploads == [("/v1beta1/upload-async", "Bearer token-1", image.read_bytes())]
    assert api.upload_headers[0]["Content-Length"] == "11000"
    assert api.upload_headers[0]["Content-Type"] == "application/octet-stream"


@pytest.mark.feature("CTL-43")
def test_upload_into_a_new_claim(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    line = "--storage-class fast --access-mode ReadWriteMany --volume-mode block --force-bind"
    result = upload(virtctl, image, f"pvc disk --size 1Gi {line}")
    assert (result.code, result.err) == (0, "")
    assert "PersistentVolumeClaim default/disk created\n" in result.out
    made = api.made(CLAIMS)
    assert made["metadata"]["labels"] == {"cdi.kubevirt.io/applyStorageProfile": "true"}
    assert made["spec"] == {
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "fast",
        "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block",
    }
    notes = {"upload.target": "", "contentType": "kubevirt", "bind.immediate.requested": ""}
    given = made["metadata"]["annotations"]
    assert {key: given[f"{STORAGE}{key}"] for key in notes} == notes


@pytest.mark.feature("CTL-44")
@pytest.mark.parametrize("kind", ["dv", "PVC"])
def test_upload_into_what_exists(api: CdiServer, virtctl: Virtctl, image: Path, kind: str) -> None:
    api.claim(pod_ready="true")
    api.volume()
    result = upload(virtctl, image, f"{kind} disk --no-create")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Using existing PVC default/disk\n")
    assert api.objects[f"{CLAIMS}/disk"]["metadata"]["annotations"][f"{STORAGE}upload.target"] == ""
    assert not [body for method, path, body in api.requests if method == "POST" and "token" not in path]
    assert len(api.uploads) == 1


@pytest.mark.feature("CTL-43")
def test_an_archive_fills_a_data_volume_for_archives(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    result = virtctl("image-upload", "dv", "disk", "--size", "1Gi", "--archive-path", str(image))
    assert result.code == 0
    assert api.made(VOLUMES)["spec"]["contentType"] == "archive"


def test_compressed_images_are_sent_as_they_are(api: CdiServer, virtctl: Virtctl, tmp_path: Path) -> None:
    packed = tmp_path / "image.gz"
    packed.write_bytes(gzip.compress(b"hello" * 1000))
    assert upload(virtctl, packed, "dv disk --size 1Gi").code == 0
    assert api.uploads[0][2] == packed.read_bytes()
    assert "Content-Encoding" not in api.upload_headers[0]


def test_default_instance_types_are_labels(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    line = (
        "dv disk --size 1Gi --datasource --default-instancetype a --default-instancetype-kind b"
        " --default-preference c --default-preference-kind d"
    )
    wanted = {
        "instancetype.kubevirt.io/default-instancetype": "a",
        "instancetype.kubevirt.io/default-instancetype-kind": "b",
        "instancetype.kubevirt.io/default-preference": "c",
        "instancetype.kubevirt.io/default-preference-kind": "d",
    }
    result = upload(virtctl, image, line)
    assert "Created a new DataSource default/disk\n" in result.out
    assert api.made(VOLUMES)["metadata"]["labels"] == wanted
    source = api.made(SOURCES)
    assert source["metadata"]["labels"] == wanted
    assert source["spec"] == {"source": {"pvc": {"name": "disk", "namespace": "default"}}}


def test_an_existing_data_source_leads_to_the_upload(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    old = {"source": {"snapshot": {"name": "old", "namespace": "n"}}}
    api.objects[f"{SOURCES}/disk"] = {"metadata": {"labels": {"own": "1"}}, "spec": old}
    result = upload(virtctl, image, "dv disk --size 1Gi --datasource --default-preference p")
    assert "Updated an existing DataSource default/disk\n" in result.out
    found = api.objects[f"{SOURCES}/disk"]
    assert found["spec"] == {"source": {"pvc": {"name": "disk", "namespace": "default"}}}
    assert found["metadata"]["labels"] == {
        "own": "1",
        "instancetype.kubevirt.io/default-preference": "p",
    }


@pytest.mark.parametrize("given", ["{url}", "{url}/", "{url}/v1beta1/upload"])
def test_a_proxy_that_only_answers_in_the_end_is_used_too(
    api: CdiServer, virtctl: Virtctl, image: Path, given: str
) -> None:
    api.has_async = False
    url = given.format(url=api.url)
    assert upload(virtctl, image, f"dv disk --size 1Gi --uploadproxy-url {url}").code == 0
    assert [path for path, _, _ in api.uploads] == ["/v1beta1/upload"]


@pytest.mark.parametrize(
    ("base", "path", "found"),
    [
        ("https://p", "/v1beta1/upload", "https://p/v1beta1/upload"),
        ("https://p/", "/v1beta1/upload", "https://p/v1beta1/upload"),
        ("https://p/deep/", "/v1beta1/upload-async", "https://p/deep/v1beta1/upload-async"),
        ("https://p/v1beta1/upload-async", "/v1beta1/upload-async", "https://p/v1beta1/upload-async"),
    ],
)
def test_endpoints_are_added_to_the_proxys_url(base: str, path: str, found: str) -> None:
    assert uploadproxy.endpoint(base, path) == found


def test_the_override_in_cdis_configuration_is_the_proxys_address(
    api: CdiServer, virtctl: Virtctl, image: Path
) -> None:
    api.objects[CONFIG] = {
        "spec": {"uploadProxyURLOverride": api.url},
        "status": {"uploadProxyURL": "https://elsewhere.invalid"},
    }
    assert upload(virtctl, image, "dv disk --size 1Gi").code == 0


def test_no_address_of_the_proxy_is_an_error(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    api.objects[CONFIG] = {"spec": {}, "status": {}}
    result = upload(virtctl, image, "dv disk --size 1Gi")
    assert (result.code, result.err) == (1, "uploadproxy URL not found\n")


@pytest.mark.parametrize("retries", ["", " --retry 3"])
def test_a_failing_upload_is_tried_again(api: CdiServer, virtctl: Virtctl, image: Path, retries: str) -> None:
    count = 3 if retries else 5
    api.statuses = [502] * (count - 1) + [200]
    assert upload(virtctl, image, f"dv disk --size 1Gi{retries}").code == 0
    assert [content for _, _, content in api.uploads] == [image.read_bytes()] * count
    api.uploads.clear()
    api.objects = {key: value for key, value in api.objects.items() if "disk" not in key}
    api.statuses = [502]
    result = upload(virtctl, image, f"dv disk --size 1Gi{retries}")
    text = f"error uploading image after {count} retries: unexpected return value 502, why\n"
    assert (result.code, result.err) == (1, text)


def test_a_token_that_has_expired_is_replaced(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    api.statuses = [400, 401, 200]
    assert upload(virtctl, image, "dv disk --size 1Gi").code == 0
    assert [token for _, token, _ in api.uploads] == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


@pytest.mark.parametrize(("statuses", "posts"), [([401], 1), ([400, 401], 5)])
def test_tokens_that_are_never_accepted_end_the_upload(
    api: CdiServer, virtctl: Virtctl, image: Path, statuses: list[int], posts: int
) -> None:
    api.statuses = statuses
    result = upload(virtctl, image, "dv disk --size 1Gi --retry 10")
    assert (result.code, result.err) == (1, "authentication failed: unexpected return value 401, why\n")
    assert (len(api.uploads), api.tokens) == (posts, 4 if posts > 1 else 1)


def test_an_upload_whose_answer_was_lost_is_not_an_error(
    api: CdiServer, virtctl: Virtctl, image: Path
) -> None:
    api.loses_answer = True
    result = upload(virtctl, image, "dv disk --size 1Gi")
    assert (result.code, result.err) == (0, "")
    assert len(api.uploads) == 1


def test_a_server_that_cannot_process_the_image_is_told_of(
    api: CdiServer, virtctl: Virtctl, image: Path
) -> None:
    api.after = {f"{STORAGE}pod.restarts": "1", f"{STORAGE}condition.running.message": "no\x1b[2J disk"}
    result = upload(virtctl, image, "dv disk --size 1Gi")
    assert (result.code, result.err) == (
        1,
        "Processing of the upload into PVC disk failed: no [2J disk\n",
    )


def test_the_upload_waits_for_its_server(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    document = api.volume()
    document["status"]["phase"] = "UploadScheduled"
    asked = 0

    def advance(path: str) -> None:
        nonlocal asked
        asked += path == f"{VOLUMES}/disk"
        if asked == 4:
            document["status"]["phase"] = "UploadReady"

    api.when_asked = advance
    api.claim(upload_target="")
    result = upload(virtctl, image, "dv disk --no-create")
    assert result.out.splitlines()[1:3] == [
        "Waiting for PVC disk upload pod to be ready...",
        "Pod now ready",
    ]


@pytest.mark.parametrize("phase", ["WaitForFirstConsumer", "PendingPopulation"])
def test_a_volume_that_waits_for_a_consumer_takes_no_upload(
    api: CdiServer, virtctl: Virtctl, image: Path, phase: str
) -> None:
    api.phase = phase
    result = upload(virtctl, image, "dv disk --size 1Gi")
    text = (
        f"cannot upload to DataVolume in {phase} phase, make sure the PVC is Bound, or use force-bind flag\n"
    )
    assert (result.code, result.err) == (1, text)


@pytest.mark.parametrize(
    ("kind", "reason", "uid", "message", "said"),
    [
        ("dv", "ProvisioningFailed", "c-disk", "no room", "Provisioning failed: no room"),
        ("dv", "ErrClaimNotValid", "v-disk", "no size", "Claim not valid: no size"),
        ("pvc", "ProvisioningFailed", "u", "no room", "Provisioning failed: no room"),
    ],
)
def test_what_the_cluster_says_of_the_claim_ends_the_wait(
    api: CdiServer, virtctl: Virtctl, image: Path, kind: str, reason: str, uid: str, message: str, said: str
) -> None:  # fmt: skip
    api.phase = "Pending"
    api.is_ready = False
    api.events = [(f"involvedObject.uid={uid},reason={reason}", {"message": message})]
    result = upload(virtctl, image, f"{kind} disk --size 1Gi")
    assert (result.code, result.err) == (1, f"{said}\n")


def test_a_volume_that_another_client_has_filled_is_not_waited_for(
    api: CdiServer, virtctl: Virtctl, image: Path
) -> None:
    api.claim(pod_phase="Running", upload_target="")
    api.phase = "Succeeded"
    api.volume()
    result = upload(virtctl, image, "dv disk --no-create")
    assert (result.code, result.err) == (1, "PVC disk already successfully populated\n")
    assert api.uploads == []


async def test_waiting_has_an_end_and_a_reason(api: CdiServer) -> None:
    conditions = [{"type": "Bound", "status": "False", "message": "no volume yet"}]
    api.volume()["status"] = {"phase": "Pending", "claimName": "disk", "conditions": conditions}
    target = Target("default", "disk")
    async with Client(ClientConfig(server=api.url)) as client:
        with pytest.raises(click.ClickException) as raised:
            await uploadclaims.wait_until_ready(client, target, 0.2, force_bind=False)
    text = "timed out after 0 s waiting for the upload pod of PVC disk (Pending; no volume yet)"
    assert raised.value.message == f"{text}: context deadline exceeded"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "expecting two args"),
        ("disk", "expecting two args"),
        ("dv disk more", "accepts at most 2 arg(s), received 3"),
        ("vm disk", "invalid resource type vm"),
        ("dv disk", "when creating a resource, the size must be specified"),
        (
            "dv disk --size 500Zb",
            "validation failed for size=500Zb: quantities must match the regular expression"
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "dv disk --size 1Gi --archive-path x",
            "cannot handle both image-path and archive-path, provide only one",
        ),
        (
            "dv disk --size 1Gi --volume-mode foo",
            "Invalid volume mode 'foo'. Valid values are 'block' and 'filesystem'.",
        ),
        (
            "dv disk --size 1Gi --access-mode ReadOnlyMany",
            "cannot upload to a readonly volume, use either ReadWriteOnce or ReadWriteMany if supported",
        ),
        ("pvc disk --size 1Gi --storage-class none", 'storageclasses "none" not found'),
        ("dv disk --no-create", 'persistentvolumeclaims "disk" not found'),
        (
            "dv disk --default-instancetype-kind k",
            "--default-instancetype must be provided with --default-instancetype-kind",
        ),
        (
            "dv disk --default-preference-kind k",
            "--default-preference must be provided with --default-preference-kind",
        ),
        (
            "dv disk --no-create --default-preference p",
            "--default-instancetype and --default-preference cannot be used with --no-create",
        ),
        ("dv disk --size 1Gi --uploadproxy-url https://[x", 'parse "https://[x": Invalid IPv6 URL'),
        (
            "dv disk --retry=-1",
            'invalid argument "-1" for "--retry" flag: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
    ],
)
def test_misuse_is_told_in_the_words_of_virtctl(
    api: CdiServer, virtctl: Virtctl, image: Path, line: str, said: str
) -> None:
    result = upload(virtctl, image, line)
    assert (result.code, result.err) == (1, f"{said}\n")
    assert api.uploads == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dv disk --size 1Gi", "either image-path or archive-path must be provided"),
        (
            "dv disk --archive-path x --volume-mode block",
            "In archive upload the volume mode should always be filesystem",
        ),
        ("dv disk --size 1Gi --image-path /nowhere/image", "open /nowhere/image: no such file or directory"),
    ],
)
def test_there_must_be_something_to_send(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl("image-upload", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")


@pytest.mark.parametrize(
    ("line", "warned", "said"),
    [
        ("--pvc-name disk --pvc-size 1Gi", ["pvc-name", "pvc-size"], ""),
        ("dv disk --size 1Gi --block-volume", ["block-volume"], ""),
        (
            "dv disk --pvc-size 1Gi --size 2Gi",
            ["pvc-size"],
            "--pvc-size and --size can not be specified at the same time",
        ),
        ("dv --pvc-name disk", ["pvc-name"], "cannot use --pvc-name and args"),
        (
            "dv disk --size 1Gi --block-volume --volume-mode filesystem",
            ["block-volume"],
            "incompatible --volume-mode 'filesystem' and --block-volume",
        ),
    ],
)
def test_flags_of_old_still_work(
    api: CdiServer, virtctl: Virtctl, image: Path, line: str, warned: list[str], said: str
) -> None:
    result = upload(virtctl, image, line)
    words = {
        "pvc-name": "specify the name as the second argument instead.",
        "pvc-size": "use --size instead.",
        "block-volume": "specify volume mode (filesystem/block) with --volume-mode instead.",
    }
    told = "".join(f"Flag --{flag} has been deprecated, {words[flag]}\n" for flag in warned)
    assert (result.code, result.err) == (1 if said else 0, told + (f"{said}\n" if said else ""))
    if line.startswith("--pvc-name"):
        assert api.made(CLAIMS)["spec"]["accessModes"] == ["ReadWriteOnce"]
    elif not said:
        assert api.made(VOLUMES)["spec"]["storage"]["volumeMode"] == "Block"


def _bound(api: CdiServer) -> None:
    api.claim(upload_target="")["status"] = {"phase": "Bound"}
    api.volume(usePopulator="true")


def _without_prime(api: CdiServer) -> None:
    api.claim(upload_target="")
    api.volume(usePopulator="true")


def _with_lost_prime(api: CdiServer) -> None:
    api.claim(populator_pvcPrime="prime")
    api.volume(usePopulator="true")


def _collected(api: CdiServer) -> None:
    api.claim(pod_phase="Succeeded", deleteAfterCompletion="true")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (_bound, "PVC disk already successfully populated"),
        (_without_prime, "Unable to get PVC Prime name from PVC default/disk"),
        (_with_lost_prime, "Unable to get PVC Prime default/disk"),
        (
            _collected,
            "DataVolume already garbage-collected: Assuming PVC default/disk is successfully populated",
        ),
        (lambda api: api.claim(), "No DataVolume is associated with the existing PVC default/disk"),
        (
            lambda api: (api.claim(pod_phase="Succeeded"), api.volume()),
            "PVC disk already successfully imported/cloned/updated",
        ),
        (lambda api: (api.claim(), api.volume()), "PVC disk not available for upload"),
    ],
)
def test_claims_that_take_no_upload_are_left_alone(
    api: CdiServer, virtctl: Virtctl, image: Path, state: object, said: str
) -> None:
    assert callable(state)
    state(api)
    result = upload(virtctl, image, "dv disk --size 1Gi")
    assert (result.code, result.err) == (1, f"{said}\n")
    assert not [path for method, path, _ in api.requests if method != "GET"]


def test_the_claim_that_a_populator_fills_takes_the_upload(
    api: CdiServer, virtctl: Virtctl, image: Path
) -> None:
    api.claim(populator_pvcPrime="prime")
    api.claim("prime", upload_target="")
    api.volume(usePopulator="true")
    result = upload(virtctl, image, "dv disk --size 1Gi")
    assert result.out.startswith("Using existing PVC default/prime\n")
    assert result.code == 0


def test_an_archive_needs_a_claim_for_archives(api: CdiServer, virtctl: Virtctl, image: Path) -> None:
    api.claim(upload_target="", contentType="kubevirt")
    result = virtctl("image-upload", "pvc", "disk", "--no-create", "--archive-path", str(image))
    assert (result.code, result.err) == (1, "PVC disk doesn't have archive contentType annotation\n")
