"""Boot sources that administrators provide by hand, and templates whose users choose among them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.claims import CLAIMS
from tests.e2e.clusters import NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program, run
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import document
from tests.e2e.programs.volumes import disks
from tests.e2e.programs.volumes.disks import Disks, arrived, create, data_volume, from_http, wait_phase
from tests.e2e.support import PASSWORD, wait_for
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

_CDI = "cdi.kubevirt.io/v1beta1"
_SOURCES = f"/apis/{_CDI}/namespaces/{NAMESPACE}/datasources"
_SNAPSHOTS = f"/apis/snapshot.storage.k8s.io/v1/namespaces/{NAMESPACE}/volumesnapshots"
_NAME = "by-hand"
_PARAMETERS = ("NAME", "DATA_SOURCE_NAME", "DATA_SOURCE_NAMESPACE", "CLOUD_USER_PASSWORD", "AUTHORIZED_KEY")


@pytest.fixture
def source(filled: Cluster) -> Iterator[str]:
    """A DataSource for a disk that nobody imports; what was made of the disk goes before it."""
    spec = {"source": {"pvc": {"name": _NAME, "namespace": NAMESPACE}}}
    filled.request("POST", _SOURCES, document("DataSource", _NAME, _CDI, spec=spec))
    yield _NAME
    filled.request("DELETE", f"{_SOURCES}/{_NAME}")
    if filled.find(f"{_SNAPSHOTS}/{_NAME}") is not None:
        filled.request("DELETE", f"{_SNAPSHOTS}/{_NAME}")


def readiness(cluster: Cluster) -> tuple[str, str]:
    """Status and reason of the DataSource's condition."""
    found = cluster.request("GET", f"{_SOURCES}/{_NAME}").get("status") or {}
    conditions: list[Document] = found.get("conditions", [])
    ready: Document = next((each for each in conditions if each["type"] == "Ready"), {})
    return ready.get("status", ""), ready.get("reason", "")


def of_source(name: str) -> Document:
    """A DataVolume of whatever the DataSource leads to, as large as that."""
    wanted = data_volume(name, {}, size=0)
    del wanted["spec"]["source"]
    wanted["spec"]["sourceRef"] = {"kind": "DataSource", "name": _NAME}
    return wanted


@pytest.mark.feature("STO-31")
def test_a_data_source_without_imports_takes_a_claim_or_a_snapshot_of_the_administrator(
    filled: Cluster, images: Disks, source: str
) -> None:
    wait_for("it has no disk", lambda: readiness(filled) == ("False", "NotFound"), 20)
    create(filled, data_volume(source, from_http("disk.qcow2")))
    wait_for("the claim is its disk", lambda: readiness(filled) == ("True", "Ready"), 90)
    create(filled, of_source("of-claim"))
    arrived(filled, images, {"of-claim": "Filesystem"})

    content = {"source": {"persistentVolumeClaimName": source}}
    made = document("VolumeSnapshot", source, "snapshot.storage.k8s.io/v1", spec=content)
    filled.request("POST", _SNAPSHOTS, made)
    snapshot = {"snapshot": {"name": source, "namespace": NAMESPACE}, "pvc": None}
    filled.request("PATCH", f"{_SOURCES}/{source}", {"spec": {"source": snapshot}})

    def leads_to_snapshot() -> bool:
        found = filled.request("GET", f"{_SOURCES}/{source}").get("status") or {}
        return "snapshot" in found.get("source", {}) and readiness(filled) == ("True", "Ready")

    wait_for("the snapshot is its disk", leads_to_snapshot, 60)
    create(filled, of_source("of-snapshot"))
    arrived(filled, images, {"of-snapshot": "Filesystem"})


def template() -> Document:
    """A template as OpenShift has them, for guests with a disk of a DataSource."""
    wanted = manifest("${NAME}", strategy="Halted", grace=1)
    reference = {"kind": "DataSource", "name": "${DATA_SOURCE_NAME}", "namespace": "${DATA_SOURCE_NAMESPACE}"}
    root: Document = {"metadata": {"name": "${NAME}"}, "spec": {"sourceRef": reference, "storage": {}}}
    wanted["spec"]["dataVolumeTemplates"] = [root]
    volumes = wanted["spec"]["template"]["spec"]["volumes"]
    volumes[0] = {"name": "root", "dataVolume": {"name": "${NAME}"}}
    keys = "ssh_authorized_keys:\n  - ${AUTHORIZED_KEY}\n"
    user_data = "#cloud-config\nhostname: ${NAME}\npassword: ${CLOUD_USER_PASSWORD}\n" + keys
    volumes[1]["cloudInitNoCloud"]["userData"] = user_data
    parameters = [{"name": each, "value": "nothing", "required": True} for each in _PARAMETERS]
    head: Document = {
        "apiVersion": "template.openshift.io/v1",
        "kind": "Template",
        "metadata": {"name": "os"},
    }
    return {**head, "objects": [wanted], "parameters": parameters}


@pytest.mark.guest
@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")
@pytest.mark.feature("VMC-16")
def test_a_template_is_customised_before_its_machine_boots(
    filled: Cluster, source: str, tmp_path: Path
) -> None:
    create(filled, data_volume(source, from_http("guest.img"), size=256 * disks.MIB))
    wait_phase(filled, source, "Succeeded")
    key, machine = tmp_path / "key", Machine(filled, "customised")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    public = key.with_suffix(".pub").read_text().strip()
    chosen = (machine.name, source, NAMESPACE, PASSWORD, public)
    (tmp_path / "openshift").write_text(json.dumps(template()))
    (tmp_path / "values").write_text(json.dumps(dict(zip(_PARAMETERS, chosen, strict=True))))
    converted = filled.virtctl("template", "convert", "-f", str(tmp_path / "openshift"))
    (tmp_path / "template").write_text(converted)
    choice = ("-f", str(tmp_path / "template"), "--params-file", str(tmp_path / "values"))
    (tmp_path / "machine").write_text(filled.virtctl("template", "process", *choice))
    filled.kubectl("create", "-f", str(tmp_path / "machine"))
    try:
        filled.virtctl("start", machine.name)
        machine.wait_running(120)
        claim = filled.request("GET", f"{CLAIMS}/{machine.name}")
        assert claim["metadata"]["annotations"]["cdi.kubevirt.io/cloneType"] == "csi-clone"
        with machine.console() as console:  # By the password.
            assert console.run("hostname") == machine.name
        known = str(tmp_path / "known")
        options = ("-i", str(key), "--known-hosts", known, "-t", "-oStrictHostKeyChecking=accept-new")
        command = (program("virtctl"), "ssh", f"root@vmi/{machine.name}", *options, "--command", "hostname")
        done = attempt(*command, env=filled.environment)
        assert done.stdout == f"{machine.name}\n", done.stderr
    finally:
        clean_up([machine])
