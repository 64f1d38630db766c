"""Ansible's collection for KubeVirt, as it is published: machines, what it tells of them, an inventory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.clusters import NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import ROOT, attempt, run
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.environments import install_environment

pytestmark = [
    pytest.mark.host,
    pytest.mark.guest,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed"),
]

_LOCK = ROOT / "tests/support/ansible.lock"
_COLLECTIONS = "ansible==12.3.0"
"""The package of all collections, of which a few are taken."""
_TAKEN = tuple(
    f"ansible_collections/{name}/" for name in ("ansible/posix", "kubernetes/core", "kubevirt/core")
)
_INSTALL_SECONDS = 300
_SECONDS = 180
_NAME = "automated"


_NO_ANSWER = b"after connection broken"
"""What pip says before it tries again."""


@dataclass(frozen=True)
class Ansible:
    """Its programs, with the collections."""

    folder: Path
    environment: dict[str, str]

    def __call__(self, program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a program, whatever comes of it."""
        words = [str(each) for each in arguments]
        executable = self.folder / "environment/bin" / program
        return attempt(executable, *words, seconds=_SECONDS, env=self.environment)

    def play(self, *tasks: Document) -> list[Document]:
        """Run tasks on this machine; their results."""
        book = self.folder / "book.yaml"
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": list(tasks)}
        book.write_text(yaml.safe_dump([play]))
        done = self("ansible-playbook", "-i", "localhost,", book)
        assert done.returncode == 0, done.stdout + done.stderr
        found: Any = json.loads(done.stdout)
        return [task["hosts"]["localhost"] for task in found["plays"][0]["tasks"]]


def _installed(folder: Path) -> None:
    """Make an environment with Ansible and the collections. Raises CalledProcessError."""
    install_environment(folder / "environment", _LOCK, seconds=_INSTALL_SECONDS)
    pip = (sys.executable, "-m", "pip", "--python", str(folder / "environment"), "--quiet")
    download = (*pip, "download", "--no-deps", "--dest", str(folder), _COLLECTIONS)
    subprocess.run(download, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "collections", [n for n in packed.namelist() if n.startswith(_TAKEN)])


@pytest.fixture(scope="module")
def ansible(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ansible:
    """Ansible for the cluster, or a skip where no package index answers; that one lacks it is a failure."""
    folder = tmp_path_factory.mktemp("ansible")
    try:
        _installed(folder)
    except subprocess.CalledProcessError as error:
        if _NO_ANSWER not in error.stderr:
            raise
        pytest.skip(f"no package index answers: {error.stderr!r}")
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_PYTHON_INTERPRETER": str(folder / "environment/bin/python"),
        "ANSIBLE_HOST_KEY_CHECKING": "False",
        "K8S_AUTH_KUBECONFIG": str(cluster.state / "kubeconfig"),
    }
    return Ansible(folder, {**os.environ, **cluster.environment, **settings})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """An SSH key."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def machine(cluster: Cluster) -> Iterator[Machine]:
    """The machine that the tasks make; what is left of it goes."""
    made = Machine(cluster, _NAME)
    yield made
    clean_up([made])


def task(module: str, **arguments: object) -> Document:
    """A task for a module of the collection."""
    return {f"kubevirt.core.{module}": {"namespace": NAMESPACE, "name": _NAME, **arguments}}


def wanted_by(key: Path) -> Document:
    """The task that has the machine there, ready."""
    whole = manifest(_NAME, grace=1)["spec"]
    spec = whole["template"]["spec"]
    user_data = spec["volumes"][1]["cloudInitNoCloud"]
    user_data["userData"] += f"ssh_authorized_keys:\n  - {key.with_suffix('.pub').read_text().strip()}\n"
    labels = {"made-by": "ansible"}
    return task("kubevirt_vm", labels=labels, run_strategy="Always", spec=spec, wait=True, wait_sleep=1)


@pytest.mark.feature("CTL-03")
def test_the_collection_makes_tells_of_lists_reaches_and_deletes_a_machine(
    cluster: Cluster, ansible: Ansible, machine: Machine, key: Path, tmp_path: Path
) -> None:
    made, again, told, of_instance = ansible.play(
        wanted_by(key), wanted_by(key), task("kubevirt_vm_info"), task("kubevirt_vmi_info")
    )
    assert (made["changed"], made["method"], again["changed"]) == (True, "create", False)
    assert machine.is_running()
    (vm,), (instance,) = told["resources"], of_instance["resources"]
    assert (vm["metadata"]["uid"], vm["status"]["printableStatus"]) == (
        machine.vm()["metadata"]["uid"],
        "Running",
    )
    assert instance["metadata"]["uid"] == machine.uid()

    inventory = tmp_path / "guests.kubevirt.yml"
    selected = {"label_selector": "made-by=ansible", "namespaces": [NAMESPACE], "create_groups": True}
    inventory.write_text(yaml.safe_dump({"plugin": "kubevirt.core.kubevirt", **selected}))
    host = f"{NAMESPACE}-{_NAME}"
    wait_for(
        "the inventory has its address", lambda: listed(ansible, inventory, host).get("ansible_host"), 30
    )
    facts = listed(ansible, inventory, host)
    assert (facts["ansible_host"], facts["vmi_uid"]) == (machine.address(), machine.uid())
    assert facts["vm_labels"] == {"made-by": "ansible"}

    options = (
        "-i",
        inventory,
        "-u",
        "root",
        "--private-key",
        key,
        "-m",
        "ansible.builtin.raw",
        "-a",
        "hostname",
    )
    assert wait_for("Ansible reaches the guest", reached(ansible, host, options), 60)

    (gone,) = ansible.play(task("kubevirt_vm", state="absent", wait=True, wait_sleep=1))
    assert (gone["changed"], gone["method"]) == (True, "delete")
    assert cluster.find(f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines/{_NAME}") is None


def listed(ansible: Ansible, inventory: Path, host: str) -> Document:
    """What the inventory tells of a host."""
    done = ansible("ansible-inventory", "-i", inventory, "--list")
    assert done.returncode == 0, done.stderr
    # What came of the cluster is marked as a text that is no template.
    whole: Document = json.loads(done.stdout, object_hook=lambda each: each.get("__ansible_unsafe", each))
    found: dict[str, Document] = whole["_meta"]["hostvars"]
    assert list(found) in ([], [host]), found
    return found.get(host) or {}


def reached(ansible: Ansible, host: str, options: tuple[object, ...]) -> Callable[[], bool]:
    """Whether Ansible logs in there and its command answers."""
    return lambda: _NAME in ansible("ansible", host, *options).stdout.split()
