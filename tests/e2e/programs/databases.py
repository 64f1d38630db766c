"""PostgreSQL and Redis, each in a StatefulSet with a claim, and clients that write without a pause."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.clusters import CORE, NAMESPACE, Cluster, is_ready
from tests.e2e.commands import attempt, run
from tests.e2e.failures import Document
from tests.e2e.programs.manifests import container, stateful_set
from tests.e2e.support import wait_for

_POSTGRES = """\
set -e
if ! [ -d /data/db ]; then
    rm -rf /data/new
    initdb -D /data/new -U postgres -A trust --locale=C
    echo "host all all all trust" >> /data/new/pg_hba.conf
    mv /data/new /data/db
fi
exec postgres -D /data/db -c listen_addresses='*' -c unix_socket_directories=/tmp -c jit=off
"""
_REDIS = "exec redis-server --dir /data --appendonly yes --appendfsync always --protected-mode no"
_PSQL = "psql -U postgres -h 127.0.0.1 -qtAc"
_POD_CGROUP = re.compile(r"/pod([0-9a-f-]{36})/")
_FEW = 5


@dataclass(frozen=True)
class Database:
    """A server in the pod NAME-0. `write` adds an entry and prints its number; `read` prints all numbers."""

    name: str
    port: int
    script: str
    ready: str
    prepare: str
    write: str
    read: str
    process: str
    """How the server's command line begins."""

    @property
    def pod_path(self) -> str:
        """Of its pod."""
        return f"{CORE}/namespaces/{NAMESPACE}/pods/{self.name}-0"

    def manifests(self) -> list[Document]:
        """What runs it."""
        ready = {"exec": {"command": ["sh", "-c", self.ready]}}
        return stateful_set(
            self.name, self.port, container(self.name, self.script, ready=ready, mounts={"data": "/data"})
        )

    def pod(self, cluster: Cluster) -> Document:
        """Its present pod. Raises ApiError."""
        return cluster.request("GET", self.pod_path)

    def node(self, cluster: Cluster) -> str:
        """The node on which it runs."""
        return str(self.pod(cluster)["spec"]["nodeName"])

    def wait_ready(self, cluster: Cluster, *, other_than: str = "") -> None:
        """Wait until it is ready in another pod than the one with this UID."""

        def is_back() -> bool:
            pod = self.pod(cluster)
            return (
                pod["metadata"]["uid"] != other_than
                and "deletionTimestamp" not in pod["metadata"]
                and is_ready(pod)
            )

        wait_for(f"{self.name} is ready", is_back, 60)

    def execute(self, cluster: Cluster, script: str) -> str:
        """The output of a shell script in its pod."""
        return cluster.kubectl("exec", f"{self.name}-0", "--", "sh", "-c", script)

    def answers(self, cluster: Cluster) -> bool:
        """Whether a client in its pod is served; the pod's status may be from before a restart."""
        command = ("kubectl", "exec", f"{self.name}-0", "--", "sh", "-c", self.ready)
        return attempt(*command, env=cluster.environment).returncode == 0

    def entries(self, cluster: Cluster) -> set[int]:
        """The numbers of all entries that it has."""
        return {int(word) for word in self.execute(cluster, self.read).split()}

    def pods_that_run_it(self, cluster: Cluster) -> set[str]:
        """UIDs of the pods in which a process of the server runs, whatever the API knows of them."""
        traces = [each.traces for each in cluster.processes() if each.command.startswith(self.process)]
        return {found[1] for text in traces if (found := _POD_CGROUP.search(text))}

    @contextmanager
    def written_to(self, cluster: Cluster, folder: Path) -> Iterator[Callable[[], set[int]]]:
        """Write while the context lasts; gives what tells the numbers of the entries acknowledged so far."""
        file = folder / f"{self.name}-acknowledged"
        loop = f"while number=$({self.write}) && echo $number; do sleep 0.02; done"
        command = ["kubectl", "exec", f"{self.name}-0", "--", "sh", "-c", loop]

        def acknowledged() -> set[int]:
            # The last line may be half of one.
            return {int(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")}

        with (
            file.open("w") as output,
            subprocess.Popen(
                command, stdout=output, stderr=subprocess.DEVNULL, env=cluster.environment
            ) as client,
        ):
            try:
                wait_for("entries are acknowledged", lambda: len(acknowledged()) > _FEW, 30)
                yield acknowledged
            finally:
                client.kill()


POSTGRES = Database(
    name="postgres",
    port=5432,
    script=_POSTGRES,
    ready="pg_isready -q -h 127.0.0.1",
    prepare=f"{_PSQL} 'CREATE TABLE IF NOT EXISTS entries (number serial PRIMARY KEY)'",
    write=f"{_PSQL} 'INSERT INTO entries DEFAULT VALUES RETURNING number'",
    read=f"{_PSQL} 'SELECT number FROM entries'",
    process="postgres -D",
)
REDIS = Database(
    name="redis",
    port=6379,
    script=_REDIS,
    ready="redis-cli ping | grep -q PONG",
    prepare="redis-cli ping",
    write="number=$(redis-cli incr last) && redis-cli rpush entries $number >/dev/null && echo $number",
    read="redis-cli lrange entries 0 -1",
    process="redis-server",
)
DATABASES = (POSTGRES, REDIS)


def drain(cluster: Cluster, node: str) -> None:
    """``kubectl drain`` a node."""
    run(
        *("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force"),
        "--timeout=90s",
        seconds=100,
        env=cluster.environment,
    )
