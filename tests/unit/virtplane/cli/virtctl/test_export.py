"""``vmexport``: exports that are made with a token, end, and are downloaded."""

from __future__ import annotations

import base64
import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from virtplane.cli.virtctl.exporting import exports

from .conftest import FakeServer, Virtctl

_EXPORTS = "/apis/export.kubevirt.io/v1/namespaces/default/virtualmachineexports"
_EXPORT = f"{_EXPORTS}/e"
_SECRETS = "/api/v1/namespaces/default/secrets"
_CONTENT = b"disk" * 1000
_PACKED = gzip.compress(_CONTENT, mtime=0)


def _absent(api: FakeServer, path: str = _EXPORT) -> None:
    api.refuse("GET", path, 404, "not found")
    api.answers["GET", path][1]["reason"] = "NotFound"


def _served(api: FakeServer, side: str = "external", **changes: Any) -> None:
    """An export that is ready, with one volume and manifests."""
    formats = [
        {"format": "raw", "url": f"{api.url}/raw"},
        {"format": "gzip", "url": f"{api.url}/gzip"},
    ]
    links = {
        "volumes": [{"name": "v", "formats": formats}],
        "manifests": [
            {"type": "all", "url": f"{api.url}/all"},
            {"type": "auth-header-secret", "url": f"{api.url}/secret"},
            {"type": "oci", "url": f"{api.url}/oci"},
        ],
        **changes,
    }
    api.answers["GET", _EXPORT] = (
        200,
        {
            "metadata": {"name": "e", "namespace": "default"},
            "spec": {"source": {"kind": "VirtualMachine", "name": "vm"}, "tokenSecretRef": "s"},
            "status": {"phase": "Ready", "links": {side: links}},
        },
    )
    api.answers["GET", f"{_SECRETS}/s"] = (200, {"data": {"token": base64.b64encode(b"secret").decode()}})
    api.answers["GET", "/gzip"] = (200, _PACKED)
    api.answers["GET", "/raw"] = (200, _CONTENT)
    api.answers["GET", "/oci"] = (200, b"archive")
    api.answers["GET", "/all"] = (200, "kind: List\n")
    api.answers["GET", "/secret"] = (200, "kind: Secret\n")


def _asked(api: FakeServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in api.requests]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_POLL_SECONDS", 0.05)


@pytest.mark.feature("CTL-47")
def test_an_export_is_deleted_if_it_is_there(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("vmexport", "delete", "e")
    said = "VirtualMachineExport 'default/e' deleted successfully\n"
    assert (result.code, result.out, result.err) == (0, "", said)
    assert _asked(api) == [("DELETE", _EXPORT)]
    api.refuse("DELETE", _EXPORT, 404, "not found")
    api.answers["DELETE", _EXPORT][1]["reason"] = "NotFound"
    result = virtctl("vmexport", "delete", "e")
    assert (result.code, result.err) == (0, "VirtualMachineExport 'default/e' does not exist\n")


@pytest.mark.feature("CTL-46")
@pytest.mark.parametrize(
    ("flags", "group", "kind"),
    [
        ("--vm s", "kubevirt.io", "VirtualMachine"),
        ("--snapshot s", "snapshot.kubevirt.io", "VirtualMachineSnapshot"),
        ("--pvc s", "", "PersistentVolumeClaim"),
        ("--vmtemplate s", "template.kubevirt.io", "VirtualMachineTemplate"),
    ],
)
def test_an_export_is_made_with_a_secret_of_its_own(
    api: FakeServer, virtctl: Virtctl, flags: str, group: str, kind: str
) -> None:
    _absent(api)
    api.answers["POST", _EXPORTS] = (201, {"metadata": {"name": "e", "uid": "u"}})
    line = f"create e {flags} --ttl 1h --labels a=b,c=d --labels e=f --annotations g=h"
    result = virtctl("vmexport", *line.split())
    said = "VirtualMachineExport 'default/e' created successfully\n"
    assert (result.code, result.out, result.err) == (0, "", said)
    _, (_, _, export), (method, path, secret) = api.requests
    labels = {"a": "b", "c": "d", "e": "f"}
    assert export["metadata"]["labels"] == labels and export["metadata"]["annotations"] == {"g": "h"}
    assert export["spec"] == {
        "source": {"apiGroup": group, "kind": kind, "name": "s"},
        "tokenSecretRef": "secret-e",
        "ttlDuration": "1h0m0s",
    }
    assert (method, path) == ("POST", _SECRETS)
    [owner] = secret["metadata"]["ownerReferences"]
    assert (secret["metadata"]["name"], owner["kind"], owner["uid"]) == (
        "secret-e",
        "VirtualMachineExport",
        "u",
    )
    assert len(base64.b64decode(secret["data"]["token"])) == 20


@pytest.mark.feature("CTL-46")
def test_what_the_server_warns_of_is_told(api: FakeServer, virtctl: Virtctl) -> None:
    _absent(api)
    api.warnings[_EXPORTS] = '299 - "no controller \\"exports\\"", 299 - "yet"'
    result = virtctl("vmexport", "create", "e", "--vm", "v")
    assert result.err.startswith('Warning: no controller "exports"\nWarning: yet\n')


def test_an_export_of_the_name_is_left_alone(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _EXPORT] = (200, {"metadata": {"name": "e"}})
    result = virtctl("vmexport", "create", "e", "--vm", "v")
    assert (result.code, result.err) == (1, "VirtualMachineExport 'default/e' already exists\n")
    assert _asked(api) == [("GET", _EXPORT)]


def test_the_token_of_an_earlier_export_is_kept(api: FakeServer, virtctl: Virtctl) -> None:
    _absent(api)
    api.refuse("POST", _SECRETS, 409, "exists")
    assert virtctl("vmexport", "create", "e", "--vm", "v").code == 0
    api.refuse("POST", _SECRETS, 403, "forbidden")
    result = virtctl("vmexport", "create", "e", "--vm", "v")
    assert (result.code, result.err) == (1, "forbidden\n")


@pytest.mark.feature("CTL-48")
@pytest.mark.parametrize(("flags", "content"), [("", _PACKED), ("--format raw", _CONTENT)], ids=["", "raw"])
def test_a_volume_is_downloaded(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, flags: str, content: bytes
) -> None:
    _served(api)
    path = tmp_path / "disk"
    result = virtctl("vmexport", "download", "e", "--output", str(path), *flags.split())
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == "Download finished successfully"
    assert path.read_bytes() == content
    assert api.headers[-1]["x-kubevirt-export-token"] == "secret"
    assert _asked(api)[-1] == ("GET", "/gzip")


@pytest.mark.parametrize(("flags", "is_deleted"), [("", True), ("--keep-vme", False)])
def test_an_export_that_is_made_for_a_download_goes_with_it(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, flags: str, is_deleted: bool
) -> None:
    _absent(api)
    line = f"download e --pvc p --output {tmp_path / 'disk'} --readiness-timeout 200ms {flags}"
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.err) == (1, "context deadline exceeded\n")
    lines = result.out.splitlines()
    assert lines[:2] == [
        "VirtualMachineExport 'default/e' created successfully",
        "couldn't get VM Export e, waiting for it to be created...",
    ]
    assert (lines[-1] == "VirtualMachineExport 'default/e' deleted successfully") is is_deleted


@pytest.mark.feature("CTL-48")
@pytest.mark.parametrize(("flags", "is_deleted"), [("", False), ("--delete-vme", True)])
def test_an_export_that_was_there_stays_unless_told(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, flags: str, is_deleted: bool
) -> None:
    _served(api)
    line = f"download e --vm v --output {tmp_path / 'disk'} {flags}"
    assert virtctl("vmexport", *line.split()).code == 0
    assert (("DELETE", _EXPORT) in _asked(api)) is is_deleted


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ({"phase": "Pending"}, "status to be ready"),
        ({"phase": "Ready", "links": {"internal": {}}}, "external links to be available"),
    ],
)
def test_an_export_that_does_not_become_ready_is_given_up(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, status: dict[str, Any], waiting: str
) -> None:
    api.answers["GET", _EXPORT] = (200, {"metadata": {"name": "e"}, "status": status})
    line = f"download e --output {tmp_path / 'disk'} --readiness-timeout 200ms"
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.err) == (1, "context deadline exceeded\n")
    assert set(result.out.splitlines()) == {f"waiting for VM Export e {waiting}..."}


def test_links_of_the_cluster_may_be_asked_for_elsewhere(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    formats = [{"format": "raw", "url": "http://inside.svc/raw?a=b"}]
    _served(api, "internal", volumes=[{"name": "v", "formats": formats}])
    path = tmp_path / "disk"
    host = api.url.removeprefix("http://")
    assert virtctl("vmexport", "download", "e", "--output", str(path), "--service-url", host).code == 0
    assert path.read_bytes() == _CONTENT
    assert _asked(api)[-1] == ("GET", "/raw?a=b")


@pytest.mark.parametrize("retries", [0, 2])
def test_a_download_that_fails_is_tried_again(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, retries: int
) -> None:
    _served(api)
    api.answers["GET", "/gzip"] = (404, "gone")
    line = f"download e --output {tmp_path / 'disk'} --retry {retries}"
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.err) == (1, "retry count reached, exiting unsuccessfully\n")
    wanted = ["Bad status: 404 Not Found", *["Retrying...", "Bad status: 404 Not Found"] * retries]
    assert result.out.splitlines() == wanted


def test_half_of_an_image_is_no_image(api: FakeServer, virtctl: Virtctl, tmp_path: Path) -> None:
    _served(api)
    api.answers["GET", "/gzip"] = (200, _PACKED[:-12])
    result = virtctl("vmexport", "download", "e", "--format", "raw", "--output", str(tmp_path / "disk"))
    assert (result.code, result.err.splitlines()[-1]) == (1, "retry count reached, exiting unsuccessfully")
    assert "the download ended before the end of the compressed image" in result.out


@pytest.mark.parametrize("behind", [b"", b"x" * (1 << 20)], ids=["alone", "followed"])
def test_an_image_that_unpacks_to_very_much_takes_no_memory(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, behind: bytes
) -> None:
    size = 256 << 20
    _served(api)
    api.answers["GET", "/gzip"] = (200, gzip.compress(bytes(size), mtime=0) + behind)
    path = tmp_path / "disk"
    tracemalloc.start()
    try:
        result = virtctl("vmexport", "download", "e", "--format", "raw", "--output", str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.code == 0, result.err
    assert path.stat().st_size == size
    assert peak < 32 << 20


@pytest.mark.feature("CTL-50", "CTL-51", "CTL-53", "CTL-54", "CTL-55")
@pytest.mark.parametrize(
    ("flags", "shown", "media_type"),
    [
        ("", "kind: List\n", "application/yaml"),
        ("--vm vm", "kind: List\n", "application/yaml"),
        ("--include-secret", "kind: List\nkind: Secret\n", "application/yaml"),
        ("--manifest-output-format=json", "kind: List\n", "application/json"),
    ],
)
def test_manifests_are_shown_or_saved(
    api: FakeServer,
    virtctl: Virtctl,
    tmp_path: Path,
    flags: str,
    shown: str,
    media_type: str,
) -> None:
    _served(api)
    path = tmp_path / "manifest"
    line = f"download e --manifest {flags} --output {path}"
    assert virtctl("vmexport", *line.split()).code == 0
    assert path.read_text() == shown
    assert api.headers[-1]["Accept"] == media_type
    assert virtctl("vmexport", "download", "e", "--manifest", *flags.split()).out == shown


def test_a_whole_machine_is_downloaded_as_an_archive(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path
) -> None:
    _served(api)
    path = tmp_path / "archive"
    assert virtctl("vmexport", "download", "e", "--format", "oci", "--output", str(path)).code == 0
    assert path.read_bytes() == b"archive"
    api.answers["GET", _EXPORT][1]["spec"]["source"]["kind"] = "PersistentVolumeClaim"
    result = virtctl("vmexport", "download", "e", "--format", "oci", "--output", str(path))
    said = 'OCI export is not supported for "PersistentVolumeClaim" sources\n'
    assert (result.code, result.err) == (1, said)


_OWN = "'default/e' VirtualMachineExport"


@pytest.mark.parametrize(
    ("links", "flags", "said"),
    [
        ({"volumes": []}, "", f"unable to access the volume info from {_OWN}"),
        ({}, "--volume w", f"unable to get a valid URL from {_OWN}"),
        (
            {"volumes": [{"name": "v"}, {"name": "w"}]},
            "",
            f"detected more than one downloadable volume in {_OWN}:"
            " Select the expected volume using the --volume flag",
        ),
        ({"manifests": []}, "--manifest", f"unable to access the manifest info from {_OWN}"),
    ],
)
def test_what_an_export_does_not_hold_is_told(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, links: dict[str, Any], flags: str, said: str
) -> None:
    _served(api, **links)
    line = f"download e --output {tmp_path / 'disk'} {flags}"
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("lose e", "invalid function 'lose'"),
        ("create", "accepts 2 arg(s), received 1"),
        (
            "create e",
            "need to specify export kind when attempting to create a VirtualMachineExport"
            " [--pvc|--vm|--snapshot|--vmtemplate]",
        ),
        ("create e --vm v --volume d", "the '--volume' flag is incompatible with 'create'"),
        ("create e --vm v --local-port 3", "the '--local-port' flag is incompatible with 'create'"),
        ("create e --vm v --ttl soon", 'time: invalid duration "soon"'),
        ("delete e --vm v", "should not specify export kind"),
        ("delete e --labels a=b", "the '--labels' flag is incompatible with 'delete'"),
        ("delete e --keep-vme", "the '--keep-vme' flag is incompatible with 'delete'"),
        (
            "download e --format zip",
            "--format is not a valid value, acceptable values are gzip/raw/oci",
        ),
        (
            "download e --manifest-output-format xml",
            "--manifest-output-format is not a valid value, acceptable values are json/yaml",
        ),
        ("download e --retry -1", "--retry is not a valid value, acceptable values are positive integers"),
        (
            "download e --local-port x",
            "--local-port is not a valid value, acceptable values are valid port numbers",
        ),
        ("download e --manifest --volume v", "the '--volume' flag is incompatible with '--manifest'"),
        ("download e --output o --readiness-timeout soon", 'time: invalid duration "soon"'),
        ("download e --output /nowhere/o", "open /nowhere/o: no such file or directory"),
        (
            "download e",
            "warning: Binary output can mess up your terminal. Use '--output -' to output into stdout anyway"
            " or consider '--output <FILE>' to save to a file",
        ),
        (
            "download e --output o --port-forward",
            "--port-forward is not there yet: forward a port to the export's service yourself, and name it by"
            " --service-url and --insecure",
        ),
        (
            "create e --vm v --pvc p",
            "if any flags in the group [vm snapshot pvc vmtemplate] are set none of the others can be;"
            " [pvc vm] were all set",
        ),
    ],
)
def test_what_cannot_be_exported_makes_nothing(
    api: FakeServer, virtctl: Virtctl, line: str, said: str
) -> None:
    result = virtctl("vmexport", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert api.requests == []
