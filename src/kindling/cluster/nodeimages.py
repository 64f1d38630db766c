"""Bringing images into nodes: those that every node has, those that users load, and those of other nodes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kindling import program
from kindling.cluster import machine, namespaces
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance, NodeLayout, write_atomically
from kindling.node.images import collector
from kindling.node.images.collector import LOADED_IMAGES

Progress = Callable[[str], None]

_BUILT_IN = "kindling.local/"
_RUNTIME_SECONDS = 30.0
_IMPORTED = re.compile(r"^unpacking (\S+) \(", re.MULTILINE)
"""How ctr tells the name of an image that it has imported."""
_MARKER = "images-imported"
"""In a node's directory: which of the built-in images it has."""


def import_built_in(instance: Instance, archives: Sequence[Path], progress: Progress) -> None:
    """Import the built-in images into every node; a new node also gets the images that were loaded before.

    Waits for the nodes' runtimes. Raises SetupError.
    """
    digest = ":".join(str(path.stat().st_size) + str(hash_of(path)) for path in archives)
    nodes = instance.running_nodes()
    for node in nodes:
        progress(f"waiting for the container runtime of {node.name}")
        wait_runtime(instance, node)
    older = [node for node in nodes if (node.directory / _MARKER).exists()]
    for node in nodes:
        marker = node.directory / _MARKER
        if marker.exists() and marker.read_text() == digest:
            continue
        for archive in archives:
            machine.run(
                [*_ctr(node), "images", "import", str(archive)],
                what=f"importing {archive.name} into {node.name}",
            )
        if older and node not in older:
            copy_images(older[0], node, progress)
        write_atomically(marker, digest.encode())


def load(instance: Instance, archives: Sequence[Path]) -> Iterable[str]:
    """Import archives (OCI or Docker) into every node; returns the output of ctr. Raises SetupError.

    Stopped nodes get them from the others when they are started.
    """
    for node in instance.stopped():
        (node.directory / _MARKER).unlink(missing_ok=True)
    for node in instance.running_nodes():
        if not namespaces.exists(node):
            raise SetupError(
                f"loading images into {node.name}",
                "the cluster is down",
                program.command("up", instance.state),
            )
        for archive in archives:
            # Image names without a registry are completed like image names in pods.
            command = [*_ctr(node), "images", "import", "--base-name", "docker.io/library"]
            what = f"importing {archive} into {node.name}"
            said = machine.run([*command, str(archive.resolve())], what=what)
            _keep(node, _IMPORTED.findall(said))
            yield said


def _keep(node: NodeLayout, names: Iterable[str]) -> None:
    """Let the node's agent know that images came from an archive, so that it never removes them."""
    file = node.directory / "kubelet" / LOADED_IMAGES
    known = collector.loaded_images(file)
    write_atomically(file, "".join(f"{name}\n" for name in sorted({*known, *names})).encode())


def copy_images(source: NodeLayout, target: NodeLayout, progress: Progress) -> None:
    """Copy the images of an existing node to a new one, so that virtual machines with loaded images start
    there, too.

    A failure is only reported: the node then pulls missing images from their registries.
    """
    names = to_copy(machine.run([*_ctr(source), "images", "ls", "-q"], what=f"images of {source.name}"))
    if not names:
        return
    _keep(target, collector.loaded_images(source.directory / "kubelet" / LOADED_IMAGES))
    progress(f"copying {len(names)} images to {target.name}")
    with subprocess.Popen(
        [*_ctr(source), "images", "export", "-", *names], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as export:
        done = subprocess.run(
            [*_ctr(target), "images", "import", "-"],
            stdin=export.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    if export.returncode or done.returncode:
        why = done.stderr.strip() or f"exporting them ended with {export.returncode}"
        progress(f"some images of {source.name} could not be copied ({why}): load them again")


def to_copy(listed: str) -> list[str]:
    """The images of a node's list that a new node lacks: all named ones except the built-in ones."""
    names = listed.split()
    return [name for name in names if not name.startswith((_BUILT_IN, "sha256:"))]


def wait_runtime(instance: Instance, node: NodeLayout) -> None:
    """Wait until the container runtime of a node answers. Raises SetupError."""
    command = [*namespaces.enter_command(node), "ctr", "--connect-timeout", "1s", "version"]
    deadline = time.monotonic() + _RUNTIME_SECONDS
    while True:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise SetupError(
                f"container runtime of {node.name}",
                answer.stderr.strip(),
                f"see {instance.logs}/containerd-{node.name}.log",
            )
        time.sleep(0.05)


def hash_of(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _ctr(node: NodeLayout) -> list[str]:
    """The ctr command inside a node, for the containerd namespace of Kubernetes."""
    return [*namespaces.enter_command(node), "ctr", "--namespace", "k8s.io"]
