"""A whole cluster as its user sees it: command lines, the API, its virtual machines, the machine below."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.e2e.commands import ROOT, program, run
from tests.e2e.failures import ApiError, Document, NotThere
from tests.e2e.processes import Process, all_processes
from tests.e2e.requests import Requests
from tests.e2e.support import PASSWORD, Console, open_console, wait_for

from kindling.cluster import instance as instances
from kindling.cluster import processes, supervisor

GUEST_IMAGE = "virtplane.local/demo-guest:latest"
FULL_GUEST_IMAGE = "virtplane.local/demo-guest-full:latest"
CORE = "/api/v1"
KUBEVIRT = "/apis/kubevirt.io/v1"
NAMESPACE = "default"
FINAL = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Cluster:
    """One running cluster in the state directory `state`."""

    state: Path
    _requests: Requests = field(default_factory=Requests, init=False, repr=False, compare=False)

    # The cluster's own command lines.

    def up(self, *options: str) -> None:
        """Start it, or what is missing of it."""
        command = (sys.executable, "-m", "virtplane.cli.main", "up", "--state", self.state)
        run(*command, *options, seconds=150, cwd=ROOT)

    def down(self) -> None:
        """Stop it."""
        run(sys.executable, "-m", "virtplane.cli.main", "down", "--state", self.state, seconds=90, cwd=ROOT)

    def reset(self) -> None:
        """Remove every trace."""
        run(sys.executable, "-m", "virtplane.cli.main", "reset", "--state", self.state, seconds=90, cwd=ROOT)

    def node(self, action: str, name: str) -> None:
        """Have something happen to a node: ``stop``, ``start`` or ``isolate``."""
        command = (sys.executable, "-m", "virtplane.cli.main", "node", action, name, "--state", self.state)
        run(*command, seconds=150, cwd=ROOT)

    def load(self, archive: Path) -> None:
        """Import an image into every node."""
        run(program("kindling"), "load", "--state", self.state, archive, seconds=90)

    @property
    def id(self) -> str:
        """What all names that the cluster uses on the machine carry."""
        return str(json.loads((self.state / "instance.json").read_text())["id"])

    @property
    def environment(self) -> dict[str, str]:
        """For clients of the cluster."""
        return {**os.environ, "KUBECONFIG": str(self.state / "kubeconfig")}

    def kubectl(self, *arguments: str, seconds: float = 30) -> str:
        """The output of a kubectl command that succeeds."""
        return run("kubectl", *arguments, seconds=seconds, env=self.environment).stdout

    def virtctl(self, *arguments: str, seconds: float = 30) -> str:
        """The output of a virtctl command that succeeds."""
        return run(program("virtctl"), *arguments, seconds=seconds, env=self.environment).stdout

    # The API.

    def request(
        self, method: str, path: str, body: Document | None = None, *, patch: str = "merge", user: str = ""
    ) -> Document:
        """One request as the administrator, or as `user`. Raises ApiError, OSError."""
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        encoded = json.dumps(body) if body is not None else None
        # Not JSON alone: actions on machines are answered with nothing.
        headers = {"Content-Type": kind, "Accept": "application/json, */*"}
        headers |= {"Impersonate-User": user} if user else {}
        code, answer = self._requests.exchange(self.state, method, path, encoded, headers)
        document = _document(answer)
        if code >= 400:
            raise ApiError(code, document)
        return document

    def find(self, path: str) -> Document | None:
        """An object, or None where there is none."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def items(self, path: str, selector: str = "") -> list[Document]:
        """The objects of a collection."""
        query = f"?labelSelector={selector}" if selector else ""
        found: list[Document] = self.request("GET", path + query)["items"]
        return found

    # Virtual machines.

    def create(self, manifest: Document) -> Machine:
        """Create a virtual machine in the default namespace."""
        self.request("POST", f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines", manifest)
        return Machine(self, manifest["metadata"]["name"])

    # The machine below.

    def component(self, name: str) -> int:
        """The process of a component: one of kindling's (``apiserver``), or one that runs in a pod.

        Raises NotThere.
        """
        # What `kindling status` shows, without the start of a program each time that somebody waits for it.
        instance = instances.require(self.state)
        if found := supervisor.find_children(instance.id, processes.specs(instance)).get(name):
            return found
        for process in self.processes():
            if "virtplane run" in process.command and process.command.split("virtplane run ")[1].startswith(
                name
            ):
                return process.pid
        raise NotThere(f"{name} does not run")

    def component_pod(self, name: str) -> Document:
        """The pod of a component of virtplane's, such as ``virt-handler``. Raises NotThere."""
        pods = self.items(f"{CORE}/namespaces/kubevirt/pods", f"kubevirt.io%3D{name}")
        for pod in pods:
            if "deletionTimestamp" not in pod["metadata"]:
                return pod
        raise NotThere(f"no pod of {name}")

    def processes(self) -> list[Process]:
        """All processes of this cluster, pods and guests included."""
        marks = (f"/kindling-{self.id}/", f"KINDLING_PROCESS={self.id}/", f"--state\0{self.state}")
        return [process for process in all_processes() if any(mark in process.traces for mark in marks)]


def _document(body: bytes) -> Document:
    """What the API answers; a text as the message of a Status."""
    try:
        found: Document = json.loads(body or b"{}")
    except ValueError:
        return {"message": body.decode(errors="replace")}
    return found


def is_ready(pod: Document) -> bool:
    """Whether a pod says that it is ready."""
    conditions = pod["status"].get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def restarts(pod: Document) -> int:
    """How often containers of a pod were started again."""
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def is_ready_again(cluster: Cluster, name: str, before: Document) -> bool:
    """Whether a component whose pod was `before` when it was killed is ready again.

    The status of before stays until the node has noticed the end of the container; so "ready" alone may be
    old, and a process that runs does not listen yet.
    """
    pod = cluster.component_pod(name)
    is_another = pod["metadata"]["uid"] != before["metadata"]["uid"] or restarts(pod) > restarts(before)
    return is_another and is_ready(pod)


@dataclass(frozen=True)
class Machine:
    """A virtual machine of the default namespace, and its instance."""

    cluster: Cluster
    name: str

    @property
    def _vm_path(self) -> str:
        return f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines/{self.name}"

    @property
    def _vmi_path(self) -> str:
        return f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachineinstances/{self.name}"

    def vm(self) -> Document:
        """The VirtualMachine."""
        return self.cluster.request("GET", self._vm_path)

    def instance(self) -> Document | None:
        """The VirtualMachineInstance, if there is one."""
        return self.cluster.find(self._vmi_path)

    def uid(self) -> str:
        """The instance's UID, or the empty string."""
        return str((self.instance() or {}).get("metadata", {}).get("uid", ""))

    def phase(self) -> str:
        """The instance's phase; the empty string without an instance."""
        return str((self.instance() or {}).get("status", {}).get("phase", ""))

    def status(self) -> str:
        """The VirtualMachine's printable status."""
        return str(self.vm().get("status", {}).get("printableStatus", ""))

    def condition(self, kind: str) -> str:
        """The status of an instance's condition; the empty string where it is absent."""
        conditions = (self.instance() or {}).get("status", {}).get("conditions", ())
        return next((str(item["status"]) for item in conditions if item["type"] == kind), "")

    def address(self) -> str:
        """The address under which pods and hosts reach the guest. Raises NotThere."""
        for card in (self.instance() or {}).get("status", {}).get("interfaces", ()):
            if card.get("ipAddress"):
                return str(card["ipAddress"])
        raise NotThere(f"{self.name} has no address")

    def pods(self) -> list[Document]:
        """The launcher pods of this machine, old and new."""
        selector = f"vm.kubevirt.io/name%3D{self.name}"
        return self.cluster.items(f"{CORE}/namespaces/{NAMESPACE}/pods", selector)

    def pod(self) -> Document:
        """The launcher pod of the present instance. Raises NotThere."""
        uid = self.uid()
        for pod in self.pods():
            if pod["metadata"]["labels"]["kubevirt.io/created-by"] == uid:
                return pod
        raise NotThere(f"{self.name} has no launcher pod")

    def events(self) -> list[Document]:
        """Events of the instance."""
        found = self.cluster.items(f"{CORE}/namespaces/{NAMESPACE}/events")
        kinds = ("VirtualMachineInstance", "VirtualMachine")
        return [
            event
            for event in found
            if event["involvedObject"]["name"] == self.name and event["involvedObject"]["kind"] in kinds
        ]

    def delete(self) -> None:
        """Ask for the machine's deletion; it may be gone already."""
        try:
            self.cluster.request("DELETE", self._vm_path)
        except ApiError as error:
            if error.code != 404:
                raise

    def is_running(self) -> bool:
        """Whether the guest runs and says so everywhere."""
        return self.phase() == "Running" and self.condition("Ready") == "True" and self.status() == "Running"

    def wait_running(self, seconds: float = 60) -> None:
        """Wait until it runs and says so everywhere."""
        wait_for(f"{self.name} runs", self.is_running, seconds)

    def wait_gone(self, seconds: float = 60) -> None:
        """Wait until machine, instance and pods are gone."""

        def is_gone() -> bool:
            return self.cluster.find(self._vm_path) is None and self.instance() is None and not self.pods()

        wait_for(f"{self.name} is gone", is_gone, seconds)

    def wait_restarted(self, uid: str, seconds: float = 60) -> None:
        """Wait until another instance than the one with `uid` runs."""
        wait_for(
            f"{self.name} runs again", lambda: self.uid() not in ("", uid) and self.is_running(), seconds
        )

    def qemu(self) -> int:
        """The guest's process. Raises NotThere."""
        return self._process(f"guest={NAMESPACE}_{self.name},")

    def command(self) -> list[str]:
        """The words of the command line of the guest's process. Raises NotThere."""
        return Path("/proc", str(self.qemu()), "cmdline").read_bytes().decode().split("\0")

    def launcher(self) -> int:
        """The launcher's process. Raises NotThere."""
        return self._process(f"\0--name\0{self.name}\0--uid\0")

    def _process(self, mark: str) -> int:
        for process in self.cluster.processes():
            if mark in process.traces:
                return process.pid
        raise NotThere(f"{self.name}: no process with {mark!r}")

    @contextmanager
    def console(self, seconds: float = 60) -> Iterator[Console]:
        """The serial console through ``virtctl console``, logged in as root."""
        with open_console(self) as console:
            console.log_in(seconds)
            yield console


def devices(command: list[str]) -> list[Document]:
    """The devices that QEMU's command line lists."""
    return [json.loads(value) for option, value in pairwise(command) if option == "-device"]


def manifest(name: str, *, strategy: str = "Always", memory: str = "128Mi", grace: int = 30) -> Document:
    """A VirtualMachine with the demo guest, the pod network and a serial console.

    It requests little of a processor: with the usual tenth for each, a small machine holds few guests.
    """
    user_data = f"#cloud-config\nhostname: {name}\npassword: {PASSWORD}\n"
    disks = [{"name": volume, "disk": {"bus": "virtio"}} for volume in ("root", "cloudinit")]
    domain = {
        "memory": {"guest": memory},
        "resources": {"requests": {"cpu": "50m"}},
        "devices": {"disks": disks, "interfaces": [{"name": "default", "masquerade": {}}], "rng": {}},
    }
    root = {"image": GUEST_IMAGE, "imagePullPolicy": "IfNotPresent"}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "runStrategy": strategy,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": grace,
                    "domain": domain,
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [
                        {"name": "root", "containerDisk": root},
                        {"name": "cloudinit", "cloudInitNoCloud": {"userData": user_data}},
                    ],
                },
            },
        },
    }
