"""A tenant who has made a launcher their own, by `exec` or by its image: it costs no other guest anything."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.clusters import CORE, GUEST_IMAGE, NAMESPACE, Cluster, Machine, is_ready_again, manifest
from tests.e2e.commands import attempt, program
from tests.e2e.failures import ApiError, NotThere
from tests.e2e.processes import kill
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.starvation import starvation_measured

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

_SERVED_SECONDS = 30.0
"""Within this, a guest is paused and goes on: virt-handler's own start counts, stopped launchers must not."""


@pytest.fixture(scope="module")
def guests(cluster: Cluster) -> Iterator[tuple[Machine, Machine]]:
    """The hostile guest and another one, both running."""
    machines = [cluster.create(manifest(name, grace=0)) for name in ("hostile", "bystander")]
    try:
        for machine in machines:
            machine.wait_running()
        yield machines[0], machines[1]
    finally:
        clean_up(machines)


def _succeeds(*command: str | Path, env: dict[str, str]) -> bool:
    return attempt(*command, env=env).returncode == 0


def _has_condition(machine: Machine, kind: str, status: str) -> bool:
    return machine.condition(kind) == status


def prove_served(machine: Machine) -> None:
    """Pause a guest and let it go on, which needs virt-handler, its launcher's libvirt and the report."""
    begun, environment = time.monotonic(), machine.cluster.environment
    with starvation_measured() as starvation:
        for action, status in (("pause", "True"), ("unpause", "")):
            command = (program("virtctl"), action, "vm", machine.name)
            wait_for(action, partial(_succeeds, *command, env=environment), _SERVED_SECONDS)
            wait_for(
                f"{action} is reported", partial(_has_condition, machine, "Paused", status), _SERVED_SECONDS
            )
        assert time.monotonic() - begun < _SERVED_SECONDS * starvation.factor


def restart_virt_handler(cluster: Cluster) -> None:
    """Have it meet everybody anew (in another pod: a container that ends twice has to wait)."""
    old = cluster.component_pod("virt-handler")
    name = old["metadata"]["name"]
    cluster.request("DELETE", f"{CORE}/namespaces/kubevirt/pods/{name}?gracePeriodSeconds=0")
    wait_for("another virt-handler is ready", partial(is_ready_again, cluster, "virt-handler", old), 30)


def libvirt_daemon(machine: Machine) -> int:
    """The daemon that the machine's launcher has started."""
    launcher = machine.launcher()
    for process in machine.cluster.processes():
        status = Path(f"/proc/{process.pid}/stat")
        if "libvirtd" in process.command and status.exists():
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == launcher:
                return process.pid
    raise NotThere("no libvirt daemon")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("part", [libvirt_daemon, Machine.launcher], ids=["libvirt", "launcher"])
def test_stopped_process_costs_its_own_guest_only(
    cluster: Cluster, guests: tuple[Machine, Machine], part: Callable[[Machine], int]
) -> None:
    hostile, bystander = guests
    with stopped(part(hostile)):
        prove_served(bystander)
        restart_virt_handler(cluster)
        prove_served(bystander)
        assert hostile.phase() == "Running"
    prove_served(hostile)


@contextmanager
def impostor(folder: Path) -> Iterator[list[bytes]]:
    """A process outside the pod listens on its control socket; yields what it was told."""
    heard: list[bytes] = []
    true, aside = folder / "launcher-sock", folder / "aside"
    true.rename(aside)
    descriptor = os.open(folder, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{descriptor}/launcher-sock")
    listener.listen()

    def listen() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # the end of the test
            with peer:
                heard.append(peer.recv(65536))

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield heard
    finally:
        aside.replace(true)
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        os.close(descriptor)
        thread.join(5)


def test_process_of_another_pod_behind_the_control_socket_is_not_spoken_to(
    cluster: Cluster, guests: tuple[Machine, Machine]
) -> None:
    hostile, bystander = guests
    uid = hostile.pod()["metadata"]["uid"]
    (folder,) = cluster.state.glob(f"nodes/*/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/sockets")
    with impostor(folder) as heard:
        restart_virt_handler(cluster)
        wait_for("virt-handler looked at it", lambda: bool(heard), 30)
        prove_served(bystander)
        assert not any(heard)
        assert hostile.phase() == "Running"
    prove_served(hostile)


@pytest.mark.parametrize("owned", [True, False], ids=["owner", "label"])
def test_copy_of_a_launcher_is_refused(guests: tuple[Machine, Machine], owned: bool) -> None:
    """Labels, annotations and owners are the creator's to write; only virt-controller may write these."""
    hostile, _ = guests
    original = hostile.pod()
    metadata = {key: original["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    if not owned:
        del metadata["ownerReferences"]
    spec = {"containers": [{"name": "compute", "image": GUEST_IMAGE}]}
    copy = {"metadata": {"name": "copied", **metadata}, "spec": spec}
    with pytest.raises(ApiError, match="only virt-controller makes pods"):
        hostile.cluster.request("POST", f"{CORE}/namespaces/{NAMESPACE}/pods", copy)


def test_deleting_a_guest_whose_launcher_is_stopped_ends_it(
    cluster: Cluster, new_machine: Callable[..., Machine]
) -> None:
    machine = new_machine("doomed", grace=0)
    machine.wait_running()
    launcher, daemon = machine.launcher(), libvirt_daemon(machine)
    kill(daemon, signal.SIGSTOP)
    kill(launcher, signal.SIGSTOP)
    machine.delete()
    machine.wait_gone(90)
    assert not Path(f"/proc/{launcher}").exists()
