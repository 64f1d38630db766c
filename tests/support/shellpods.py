"""Pods with a shell, and what is done in them from outside."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.clusters import CORE, Cluster
from tests.e2e.commands import attempt
from tests.e2e.failures import Document
from tests.e2e.support import wait_for

IMAGE = "kindling.local/busybox:1"
_WAIT = "trap 'exit 0' TERM; while :; do sleep 600 & wait $!; done"


@dataclass
class ShellPod:
    """A running pod of the busybox image; its tools are the machine's busybox."""

    cluster: Cluster
    name: str
    namespace: str
    _pid: list[int] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Where the API has it."""
        return f"{CORE}/namespaces/{self.namespace}/pods/{self.name}"

    def document(self) -> Document:
        """The pod."""
        return self.cluster.request("GET", self.path)

    @property
    def address(self) -> str:
        """Its address on the pod network."""
        return str(self.document()["status"]["podIP"])

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.document()["metadata"]["uid"])

    @property
    def pid(self) -> int:
        """The process of its container."""
        if not self._pid:
            mark = f"pod{self.uid}"
            found = [each for each in self.cluster.processes() if mark in each.traces]
            self._pid.append(next(each.pid for each in found if _WAIT in each.command))
        return self._pid[0]

    @property
    def network(self) -> Path:
        """Its network namespace."""
        return Path(f"/proc/{self.pid}/ns/net")

    def run(self, script: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
        """Run a script in its container, whatever comes of it."""
        return attempt(
            "nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--root", "--wd",
            "/bin/sh", "-c", script, seconds=seconds,
        )  # fmt: skip

    def fetches(self, address: str, port: int, seconds: int = 3) -> str:
        """What a web server says to it; the empty string without an answer."""
        # The static busybox's wget looks up addresses as well, which static programs cannot.
        ask = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w {seconds} {address} {port}"
        return self.run(ask).stdout.rpartition("\n\n")[2].strip()

    def connects(self, address: str, port: int, seconds: int = 3) -> bool:
        """Whether a TCP connection of it is accepted."""
        return self.run(f"nc -w {seconds} {address} {port} </dev/null").returncode == 0

    def serve(self, text: str) -> None:
        """Answer every request on port 8080 with `text`."""
        done = self.run(f"mkdir -p /tmp/www && echo {text} >/tmp/www/index.html && httpd -p 8080 -h /tmp/www")
        assert done.returncode == 0, done.stderr

    def delete(self) -> None:
        """Delete it at once, and wait until it is gone."""
        self.cluster.request("DELETE", f"{self.path}?gracePeriodSeconds=0")
        wait_for(f"pod {self.name} is gone", lambda: self.cluster.find(self.path) is None, 30)


@contextmanager
def shell_pod(
    cluster: Cluster, name: str, namespace: str = "default", **container: Any
) -> Iterator[ShellPod]:
    """A pod for the time of a test; `container` has fields of its container, `labels` and `volumes` the
    pod's.
    """
    labels, volumes = container.pop("labels", {}), container.pop("volumes", [])
    command = {"name": "main", "image": IMAGE, "command": ["sh", "-c", _WAIT], **container}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [command], "volumes": volumes, "terminationGracePeriodSeconds": 0},
    }
    cluster.request("POST", f"{CORE}/namespaces/{namespace}/pods", manifest)
    made = ShellPod(cluster, name, namespace)
    try:
        wait_for(f"pod {name} runs", lambda: made.document()["status"].get("phase") == "Running", 60)
        yield made
    finally:
        made.delete()
