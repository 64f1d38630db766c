"""A whole cluster as its user sees it: command lines, the API, consoles, and the machine below."""

from __future__ import annotations

import http.client
import json
import os
import pty
import re
import select
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.starvation import starvation_measured

Document = dict[str, Any]
_Found = TypeVar("_Found")

ROOT = Path(__file__).parents[2]
GUEST_IMAGE = "virtplane.local/demo-guest:latest"
PASSWORD = "virtplane"
CORE = "/api/v1"
KUBEVIRT = "/apis/kubevirt.io/v1"
NAMESPACE = "default"
FINAL = ("Succeeded", "Failed")
_POLL_SECONDS = 0.1


class NotInTime(AssertionError):
    """Something that was waited for did not happen."""


class NotThere(AssertionError):
    """What is looked for is not there, or not yet."""


def wait_for(what: str, look: Callable[[], _Found | None], seconds: float) -> _Found:
    """Call `look` until it gives something true, for `seconds` of a machine that is not busy otherwise.

    Failures of the API, and what is not there, count as "not yet". Raises NotInTime.
    """
    begun = time.monotonic()
    last: object = None
    with starvation_measured() as starvation:
        while True:
            try:
                found = look()
            except (OSError, http.client.HTTPException, ApiError, NotThere) as error:
                found, last = None, error
            if found:
                return found
            limit = seconds * starvation.factor
            if time.monotonic() - begun > limit:
                raise NotInTime(f"{what}: not within {limit:.1f} s" + (f" (last: {last!r})" if last else ""))
            time.sleep(_POLL_SECONDS)


def run(*command: str | Path, seconds: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command and insist on its success."""
    done = attempt(*command, seconds=seconds, **options)
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def attempt(*command: str | Path, seconds: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, whatever comes of it."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def program(name: str) -> Path:
    """A console script of this environment."""
    return Path(sys.executable).with_name(name)


class ApiError(Exception):
    """The API refused; `code` is the HTTP status."""

    def __init__(self, code: int, status: Document) -> None:
        super().__init__(f"{code} {status.get('message', '')}")
        self.code = code


@dataclass(frozen=True)
class Cluster:
    """One running cluster in the state directory `state`."""

    state: Path

    # The cluster's own command lines.

    def up(self) -> None:
        """Start it, or what is missing of it."""
        run(sys.executable, "-m", "virtplane.cli.main", "up", "--state", self.state, seconds=150, cwd=ROOT)

    def down(self) -> None:
        """Stop it."""
        run(sys.executable, "-m", "virtplane.cli.main", "down", "--state", self.state, seconds=90, cwd=ROOT)

    def reset(self) -> None:
        """Remove every trace."""
        run(sys.executable, "-m", "virtplane.cli.main", "reset", "--state", self.state, seconds=90, cwd=ROOT)

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
        self, method: str, path: str, body: Document | None = None, *, patch: str = "merge"
    ) -> Document:
        """One request as the administrator. Raises ApiError, OSError."""
        tls = ssl.create_default_context(cafile=str(self.state / "pki/ca.crt"))
        tls.load_cert_chain(self.state / "pki/admin.crt", self.state / "pki/admin.key")
        port = json.loads((self.state / "instance.json").read_text())["api_port"]
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=20)
        kind = f"application/{patch}-patch+json" if method == "PATCH" else "application/json"
        try:
            encoded = json.dumps(body) if body is not None else None
            connection.request(method, path, encoded, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            document: Document = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, document)
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
        listing = attempt(program("kindling"), "status", "--state", self.state).stdout
        for line in listing.splitlines():
            words = line.split()
            if words[:1] == [name] and words[1:2] and words[1].isdigit():
                return int(words[1])
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
class Process:
    """A process of the machine; `traces` is all text by which it can be attributed."""

    pid: int
    command: str
    traces: str

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, unless the process ended by itself."""
        kill(self.pid, number)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, unless it ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def all_processes() -> Iterator[Process]:
    """The processes of the machine, without those that are only waiting to be collected."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if command:
                texts = [
                    (entry / name).read_bytes().decode(errors="replace") for name in ("cgroup", "environ")
                ]
                yield Process(int(entry.name), command.replace("\0", " "), "\n".join([command, *texts]))
        except OSError:
            continue


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
        """Ask for the machine's deletion."""
        self.cluster.request("DELETE", self._vm_path)

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


class Console:
    """``virtctl console`` in a terminal of its own."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self.process = process
        self.seen = ""
        self._count = 0

    def send(self, text: str) -> None:
        """Press keys."""
        os.write(self._descriptor, text.encode())

    def expect(self, pattern: str, seconds: float) -> re.Match[str]:
        """Wait for output that matches; what stands up to its end is consumed.

        `seconds` hold on a machine that is not busy otherwise, as in `wait_for`. Raises NotInTime.
        """
        match = re.search(pattern, self.seen)
        if match is None:
            begun = time.monotonic()
            with starvation_measured() as starvation:
                while (match := re.search(pattern, self.seen)) is None:
                    limit = seconds * starvation.factor
                    if time.monotonic() - begun > limit:
                        raise NotInTime(
                            f"console: no {pattern!r} in {limit:.1f} s, but {self.seen[-2000:]!r}"
                        )
                    self._read(repr(pattern))
        self.seen = self.seen[match.end() :]
        return match

    def watch(self, seconds: float) -> str:
        """What was not consumed yet after so many seconds of looking on."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read("the end of looking on")
        return self.seen

    def _read(self, awaited: str) -> None:
        """Add what comes within a moment to what was seen."""
        ready, _, _ = select.select([self._descriptor], [], [], _POLL_SECONDS)
        if not ready:
            return
        try:
            self.seen += os.read(self._descriptor, 65536).decode(errors="replace")
        except OSError as error:
            raise NotInTime(f"console ended before {awaited}: {self.seen[-2000:]!r}") from error

    def log_in(self, seconds: float = 60) -> None:
        """Log in as root, or find the shell that an earlier console left open."""
        deadline = time.monotonic() + seconds
        while True:
            self.send("\n")
            try:
                found = self.expect(r"login: |~ # |Password: ", 3)
            except NotInTime:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                continue
            if found[0] == "login: ":
                self.send("root\n")
                self.expect("Password: ", 20)
                self.send(f"{PASSWORD}\n")
                self.expect("~ # ", 20)
            if found[0] != "Password: ":
                break
        self.run("stty -echo cols 300; dmesg -n 1")

    def run(self, command: str, seconds: float = 20) -> str:
        """Type a command and return what it prints."""
        self._count += 1
        mark = f"end-{self._count}-{os.getpid()}"
        # The quotes keep an echo of the command line from looking like its end.
        self.send(f"{command}; echo \"{mark}\"''=\n")
        output = self.expect(rf"(?s)(.*?){mark}=\r?\n?", seconds)[1]
        self.expect("~ # ", seconds)
        return output.replace("\r", "").strip()

    def leave(self) -> int:
        """Press the escape key; the exit code of virtctl."""
        self.send("\x1d")
        return self.process.wait(10)


@contextmanager
def open_console(machine: Machine) -> Iterator[Console]:
    """``virtctl console NAME`` in a pseudo-terminal."""
    ours, theirs = pty.openpty()
    command = [str(program("virtctl")), "console", machine.name]
    environment = machine.cluster.environment
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield Console(ours, process)
        finally:
            if process.poll() is None:
                process.kill()
            os.close(ours)


def manifest(name: str, *, strategy: str = "Always", memory: str = "96Mi", grace: int = 30) -> Document:
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
