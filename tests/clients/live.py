"""An API server and controllers as processes, a kubeconfig for them, and a node that only pretends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import trustme
import yaml

from kubecore.client import Client, ClientConfig
from kubecore.errors import StatusError
from kubecore.resources import LEASES, NODES, PODS

Document = dict[str, Any]
_Found = TypeVar("_Found")

ADMINISTRATOR = "kubernetes-admin"
START_SECONDS = 30.0
NODE = "hollow"
_BEAT_SECONDS = 10.0


def wait_for(what: str, look: Callable[[], _Found], seconds: float = 20.0) -> _Found:
    """What `look` returns once that is true. Fails the test when it never is."""
    limit = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return found


@dataclass
class LiveCluster:
    """Where the processes are and how clients reach them."""

    folder: Path
    url: str = ""
    ca_file: Path = Path()
    cert_file: Path = Path()
    key_file: Path = Path()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def config(self) -> ClientConfig:
        """The administrator's, for our own client."""
        return ClientConfig(
            server=self.url,
            ca_data=self.ca_file.read_bytes(),
            client_cert=self.cert_file.read_bytes(),
            client_key=self.key_file.read_bytes(),
        )

    @property
    def environment(self) -> dict[str, str]:
        """What a client process sees."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}

    def context(self) -> ssl.SSLContext:
        """TLS as the administrator."""
        made = ssl.create_default_context(cafile=str(self.ca_file))
        made.load_cert_chain(self.cert_file, self.key_file)
        return made

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """One request without any client library: status and decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        made = urllib.request.Request(self.url + path, data, {"Content-Type": content_type}, method=method)
        try:
            with urllib.request.urlopen(made, context=self.context(), timeout=20) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read()
        with contextlib.suppress(ValueError):
            return status, json.loads(text)
        return status, text.decode()

    def server_errors(self) -> list[str]:
        """What the audit log says was answered with 500 or more, but for what a node should have answered.

        The node only pretends, so requests that are passed on to it fail, in Kubernetes as well.
        """
        found = []
        for line in (self.folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            code = event.get("responseStatus", {}).get("code", 0)
            passed_on = event.get("objectRef", {}).get("subresource") in ("log", "exec", "attach", "proxy")
            if code >= 500 and event.get("stage") == "ResponseComplete" and not passed_on:
                found.append(f"{event['verb']} {event['requestURI']}: {code} {event['responseStatus']}")
        return found

    def logged_failures(self) -> list[str]:
        """Records of level error in the logs of both processes."""
        found = []
        for log in self.folder.glob("*.log"):
            if log.name == "audit.log":
                continue
            for line in log.read_text().splitlines():
                if '"level":"error"' in line.replace(" ", "") or "Traceback" in line:
                    found.append(f"{log.name}: {line[:2000]}")
        return found


def _write_identities(cluster: LiveCluster) -> dict[str, Path]:
    authority = trustme.CA()
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    files = {
        name: cluster.folder / name for name in ("ca.crt", "tls.crt", "tls.key", "admin.crt", "admin.key")
    }
    files["ca.crt"].write_bytes(authority.cert_pem.bytes())
    server = authority.issue_cert("127.0.0.1", "localhost", not_after=end)
    admin = authority.issue_cert(
        "admin@example.com", common_name=ADMINISTRATOR, organization_name="system:masters", not_after=end
    )
    for name, leaf in (("tls", server), ("admin", admin)):
        files[f"{name}.crt"].write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        files[f"{name}.key"].write_bytes(leaf.private_key_pem.bytes())
    command = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    subprocess.run([*command, "-out", cluster.folder / "sa.key"], check=True, capture_output=True)
    cluster.ca_file, cluster.cert_file = files["ca.crt"], files["admin.crt"]
    cluster.key_file = files["admin.key"]
    return files


def _start(cluster: LiveCluster, name: str, module: str, *arguments: str) -> None:
    with (cluster.folder / f"{name}.log").open("wb") as log:
        command = [sys.executable, "-m", module, *arguments]
        cluster.processes.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=cluster.environment
            )
        )


def _port(cluster: LiveCluster) -> int:
    """The port that the server says it listens on."""
    process = cluster.processes[0]
    log = cluster.folder / "apiserver.log"

    def look() -> int:
        assert process.poll() is None, log.read_text()[-2000:]
        for line in log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                return int(json.loads(line).get("port", 0))
        return 0

    return wait_for("the API server listens", look, START_SECONDS)


def _write_kubeconfig(cluster: LiveCluster) -> None:
    target = {"server": cluster.url, "certificate-authority": str(cluster.ca_file)}
    user = {"client-certificate": str(cluster.cert_file), "client-key": str(cluster.key_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "live", "cluster": target}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "live", "context": {"cluster": "live", "user": "admin"}}],
        "current-context": "live",
    }
    cluster.kubeconfig.write_text(yaml.safe_dump(document))


def _start_controllers(cluster: LiveCluster) -> None:
    flags = (f"--kubeconfig={cluster.kubeconfig}", f"--sa-key={cluster.folder / 'sa.key'}")
    _start(cluster, "controllers", "kindling.controllers.main", *flags)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_for("the controllers work", lambda: cluster.request("GET", account)[0] == 200, START_SECONDS)


@contextmanager
def running_cluster(folder: Path, *, controllers: bool = True) -> Iterator[LiveCluster]:
    """An API server on a free port and the controllers, until the end of the block."""
    cluster = LiveCluster(folder)
    files = _write_identities(cluster)
    options = {"state-dir": folder, "tls-cert": files["tls.crt"], "tls-key": files["tls.key"]}
    options |= {"client-ca": files["ca.crt"], "sa-key": folder / "sa.key", "audit-log": folder / "audit.log"}
    try:
        flags = (f"--{name}={value}" for name, value in options.items())
        _start(cluster, "apiserver", "kindling.apiserver.main", "--bind=127.0.0.1", "--port=0", *flags)
        cluster.url = f"https://127.0.0.1:{_port(cluster)}"
        _write_kubeconfig(cluster)
        if controllers:
            _start_controllers(cluster)
        yield cluster
    finally:
        for process in reversed(cluster.processes):
            process.send_signal(signal.SIGTERM)
        for process in cluster.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class HollowNode:
    """A node whose pods run at once, in name only, and end as soon as they are asked to."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hollow-node")
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> HollowNode:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        def end() -> None:
            if self._task is not None:
                self._task.cancel()

        self._loop.call_soon_threadsafe(end)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._task = self._loop.create_task(self._work())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(asyncio.sleep(0.2))  # closing connections takes turns of the loop

    async def _work(self) -> None:
        async with Client(self._config) as client:
            await self._register(client)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat(client))
                while True:
                    async for event in client.watch(PODS, field_selector=f"spec.nodeName={NODE}"):
                        if event.type != "DELETED":
                            await _play(client, event.object)

    async def _register(self, client: Client) -> None:
        await client.create(NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}})
        await client.patch(NODES, NODE, {"spec": {"taints": None}}, type="merge")
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "200"}
        now = _now()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "so it says"}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}],
        }
        await client.patch(NODES, NODE, {"status": status}, type="merge", subresource="status")
        lease = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40}}
        await client.create(LEASES, lease, "kube-node-lease")

    async def _beat(self, client: Client) -> None:
        while True:
            renewed = {"spec": {"renewTime": _now(micro=True)}}
            await client.patch(LEASES, NODE, renewed, "kube-node-lease", type="merge")
            await asyncio.sleep(_BEAT_SECONDS)


async def _play(client: Client, pod: Document) -> None:
    """What a node does with a pod that it has got."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    with contextlib.suppress(StatusError):  # it may be gone meanwhile
        if "deletionTimestamp" in pod["metadata"]:
            await client.delete(PODS, name, namespace, grace_period_seconds=0)
        elif pod.get("status", {}).get("phase") == "Pending":
            status = _running(pod)
            await client.patch(PODS, name, {"status": status}, namespace, type="merge", subresource="status")


def _running(pod: Document) -> Document:
    now = _now()
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "startTime": now,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "sha256:none",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _now(micro: bool = False) -> str:
    moment = datetime.datetime.now(datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
