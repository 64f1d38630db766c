"""``memory-dump``: what is asked of the server, the claims and exports that are made, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from virtplane.cli.virtctl import memorydump

from .conftest import SUB, FakeServer, Virtctl

_MACHINE = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"
_CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/c"
_INSTANCE = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
_CDI = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config"
_EXPORTS = "/apis/export.kubevirt.io/v1/namespaces/default/virtualmachineexports"
_SUB = f"{SUB}/default/virtualmachines/vm"


def _changes(api: FakeServer) -> list[tuple[str, str, Any]]:
    return [found for found in api.requests if found[0] != "GET"]


def _overhead(api: FakeServer, shares: JsonObject | None) -> None:
    """What CDI says of file systems; nothing where there is no CDI."""
    api.answers["GET", _CDI] = (200, {"status": {"filesystemOverhead": shares}})
    if shares is None:
        api.refuse("GET", _CDI, 404, "not found")
        api.answers["GET", _CDI][1]["reason"] = "NotFound"


_SHARES = {"global": "0.1", "storageClass": {"fast": "0.2"}}


@pytest.mark.feature("CTL-56")
@pytest.mark.parametrize(
    ("shares", "flags", "domain", "size"),
    [
        (_SHARES, "", {"resources": {"requests": {"memory": "1Gi"}}}, "1237Mi"),
        (_SHARES, "--storage-class fast", {"resources": {"requests": {"memory": "1Gi"}}}, "1349Mi"),
        (None, "--access-mode ReadWriteMany", {"resources": {"requests": {"memory": "1Gi"}}}, "1186Mi"),
        (_SHARES, "", {"memory": {"guest": "900Mi"}}, "1100Mi"),
    ],
)
def test_a_claim_for_the_dump_is_made_first(
    api: FakeServer, virtctl: Virtctl, shares: JsonObject | None, flags: str, domain: JsonObject, size: str
) -> None:
    api.refuse("GET", _CLAIM, 404, "not found")
    api.answers["GET", _CLAIM][1]["reason"] = "NotFound"
    api.answers["GET", _INSTANCE] = (200, {"spec": {"domain": domain}})
    _overhead(api, shares)
    result = virtctl("memory-dump", "get", "vm", "--create-claim", "--claim-name", "c", *flags.split())
    told = [] if shares else ["Using default 5.5%% filesystem overhead for pvc size"]
    said = ["PVC default/c created", "Successfully submitted memory dump request of VM vm"]
    assert (result.code, result.out.splitlines()) == (0, told + said)
    (method, path, claim), request = _changes(api)
    assert (method, path) == ("POST", _CLAIM.removesuffix("/c"))
    assert claim["metadata"]["labels"] == {"cdi.kubevirt.io/applyStorageProfile": "true"}
    assert claim["spec"]["resources"] == {"requests": {"storage": size}}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany" if "Many" in flags else "ReadWriteOnce"]
    assert claim["spec"].get("storageClassName") == ("fast" if "fast" in flags else None)
    assert request == ("PUT", f"{_SUB}/memorydump", {"claimName": "c", "phase": ""})


def test_a_dump_is_downloaded_once_it_is_complete(api: FakeServer, virtctl: Virtctl, tmp_path: Path) -> None:
    request = {"claimName": "c", "phase": "Completed"}
    api.answers["GET", _MACHINE] = (200, {"status": {"memoryDumpRequest": request}})
    formats = [{"format": "raw", "url": f"{api.url}/raw"}]
    links = {"external": {"volumes": [{"name": "c", "formats": formats}]}}
    api.answers["GET", f"{_EXPORTS}/export-vm-c"] = (
        200,
        {
            "metadata": {"name": "e"},
            "spec": {"tokenSecretRef": "s"},
            "status": {"phase": "Ready", "links": links},
        },
    )
    api.answers["GET", "/api/v1/namespaces/default/secrets/s"] = (200, {"data": {"token": "eA=="}})
    api.answers["GET", "/raw"] = (200, b"memory")
    result = virtctl("memory-dump", "download", "vm", "--output", str(tmp_path / "dump"))
    assert result.code == 0, result.err
    assert result.out == "Memory dump completed successfully\nDownload finished successfully\n"
    assert (tmp_path / "dump").read_bytes() == b"memory"


def test_a_dump_that_does_not_end_is_given_up(
    api: FakeServer, virtctl: Virtctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memorydump, "_DUMP_SECONDS", 0.2)
    monkeypatch.setattr(memorydump, "_POLL_SECONDS", 0.05)
    request = {"claimName": "c", "phase": "InProgress"}
    api.answers["GET", _MACHINE] = (200, {"status": {"memoryDumpRequest": request}})
    result = virtctl("memory-dump", "download", "vm", "--output", str(tmp_path / "dump"))
    assert (result.code, result.err) == (1, "context deadline exceeded\n")
    shown = "Waiting for memorydump  to complete, current phase: InProgress..."
    assert set(result.out.splitlines()) == {shown}
    assert _changes(api) == []


def test_a_dump_into_a_claim_is_asked_for(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("memory-dump", "get", "vm", "--claim-name", "c")
    assert (result.code, result.out) == (0, "Successfully submitted memory dump request of VM vm\n")
    assert _changes(api) == [("PUT", f"{_SUB}/memorydump", {"claimName": "c", "phase": ""})]


def test_a_further_dump_goes_into_the_claim_of_the_last(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("memory-dump", "get", "vm").code == 0
    assert _changes(api) == [("PUT", f"{_SUB}/memorydump", {"claimName": "", "phase": ""})]


def test_the_claim_of_dumps_is_let_go(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("memory-dump", "remove", "vm")
    said = "Successfully submitted remove memory dump association of VM vm\n"
    assert (result.code, result.out) == (0, said)
    assert [path for _, path, _ in _changes(api)] == [f"{_SUB}/removememorydump"]


@pytest.mark.parametrize(
    ("action", "path", "said"),
    [
        ("get", "memorydump", "error dumping vm memory, no"),
        ("remove", "removememorydump", "error removing memory dump association, no"),
    ],
)
def test_a_refusal_is_told(api: FakeServer, virtctl: Virtctl, action: str, path: str, said: str) -> None:
    api.refuse("PUT", f"{_SUB}/{path}", 409, "no")
    result = virtctl("memory-dump", action, "vm")
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("get", "accepts 2 arg(s), received 1"),
        ("keep vm", "invalid action type keep"),
        ("download vm", "missing outputFile to download the memory dump"),
        (
            "get vm --claim-name c --output f --format zip",
            "--format is not a valid value, acceptable values are gzip/raw",
        ),
        (
            "download vm --output f --port-forward",
            "--port-forward is not there yet: the export's own address has to be reached",
        ),
        ("get vm --create-claim", "missing claim name"),
        (
            "get vm --create-claim --claim-name c",
            "PVC default/c already exists, check if it should be created if not remove create flag",
        ),
        (
            "get vm --create-claim --claim-name d --access-mode ReadOnlyMany",
            "cannot dump memory to a readonly pvc, use either ReadWriteOnce or ReadWriteMany if supported",
        ),
        (
            "get vm --create-claim --claim-name d --access-mode x",
            "invalid access mode, use either ReadWriteOnce or ReadWriteMany if supported",
        ),
    ],
)
def test_what_cannot_succeed_makes_nothing(api: FakeServer, virtctl: Virtctl, line: str, said: str) -> None:
    api.answers["GET", _CLAIM] = (200, {"metadata": {"name": "c"}})
    api.refuse("GET", _CLAIM.removesuffix("c") + "d", 404, "not found")
    api.answers["GET", _CLAIM.removesuffix("c") + "d"][1]["reason"] = "NotFound"
    _overhead(api, {"global": "0"})
    result = virtctl("memory-dump", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert _changes(api) == []


def test_a_new_claim_waits_until_the_old_one_is_let_go(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, {"status": {"memoryDumpRequest": {"claimName": "old"}}})
    result = virtctl("memory-dump", "get", "vm", "--create-claim", "--claim-name", "c")
    said = "please remove current memory dump association before creating a new claim for a new memory dump\n"
    assert (result.code, result.err) == (1, said)
    assert _changes(api) == []
