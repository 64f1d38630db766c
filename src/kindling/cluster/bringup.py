"""``kindling up``: starts a new cluster, or the missing processes of an existing one, and waits until it is
ready.
"""

from __future__ import annotations

import ipaddress
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kindling import program
from kindling.apiserver.storage import files
from kindling.cluster import (
    certificates,
    containerd,
    images,
    kubeconfig_merge,
    kubeconfigs,
    machine,
    namespaces,
    node_network,
    node_places,
    node_teardown,
    nodeimages,
    processes,
    state_directory,
    storage_pool,
    supervisor,
)
from kindling.cluster import (
    instance as instances,
)
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.instance import Instance, NodeLayout
from kindling.cluster.readiness import missing_parts, refusal

Progress = Callable[[str], None]
"""Told what is being done or waited for."""

READY_SECONDS = 90.0
_KILLED_SECONDS = 10
_SUPERVISOR_SECONDS = 60.0
"""It stops the processes of a node one after the other."""
_KEPT_VARIABLES = ("PATH", "LANG", "TZ", "HOME", "PYTHONPATH", program.VARIABLE)


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of ``kindling up``."""

    state: Path
    nodes: int | None = None
    host_image: bool = True
    api_flags: tuple[str, ...] = ()
    api_port: int | None = None
    external_ranges: tuple[str, ...] = ()
    image_accounts: tuple[str, ...] = ()
    storage: int | None = None
    """Bytes of the storage pool; None leaves it as it is, and for a new cluster chooses."""


def up(options: UpOptions, progress: Progress) -> Instance:
    """Bring the cluster up. Processes that run already are restarted only if they are outdated. Raises
    SetupError.
    """
    with node_lock(options.state, progress):
        return bring_up(options, progress)


@contextmanager
def node_lock(state: Path, progress: Progress) -> Iterator[None]:
    """`instances.node_lock`, which tells the user if it has to wait."""
    text = f"waiting for another command that changes the nodes of {state}"
    with instances.node_lock(state, lambda: progress(text)):
        yield


def bring_up(options: UpOptions, progress: Progress) -> Instance:
    """As `up`, for those who hold the lock of the nodes. Stopped nodes stay stopped."""
    machine.check_machine()
    progress("preparing state, certificates and addresses")
    instance = _load_or_create(options)
    certificates.ensure(instance)
    kubeconfigs.ensure(instance)
    try:
        kubeconfig_merge.refresh(instance)
    except (SetupError, OSError) as error:
        progress(f"kubeconfigs that the cluster was added to stay as they are: {error}")
    for directory in (instance.pki, instance.state, instance.state.parent):
        files.sync_directory(
            directory
        )  # never generate keys twice: certificates and tokens signed with the first ones are in use
    has_pool = storage_pool.ensure(instance, options.storage, progress)
    node_network.create(instance)
    for node in instance.running_nodes():
        progress(f"preparing {node.name}")
        _prepare_node(instance, node, progress)
    if has_pool:
        storage_pool.mount(instance)
    archives = images.build_images(instance.state / "images", host_image=instance.host_image)
    instance.logs.mkdir(exist_ok=True)
    logged = _size(instance.logs / "apiserver.log")
    run_processes(instance)
    for node in instance.stopped():
        progress(f"{node.name} stays stopped: {program.command(f'node start {node.name}', instance.state)}")
        switch_off(instance, node, 0, progress)  # stopping it may have been interrupted
    nodeimages.import_built_in(instance, archives, progress)
    wait_ready(instance, progress, logged)
    return instance


def run_processes(instance: Instance) -> None:
    """Have the supervisor, started now if there is none, run exactly the processes of the instance."""
    if not _reload_supervisor(instance):
        _launch_supervisor(instance)


def switch_off(instance: Instance, node: NodeLayout, grace_seconds: float, progress: Progress) -> None:
    """End a node that is recorded as stopped. May be repeated. Raises SetupError."""
    record = instance.state / processes.SUPERVISED
    record.unlink(missing_ok=True)
    run_processes(instance)
    own = {spec.name for spec in processes.of_node(instance, node.name)}
    deadline = time.monotonic() + _SUPERVISOR_SECONDS
    # Whatever the supervisor was doing when the record was removed, it has read the settings when it writes
    # one without the node's processes, and starts none of them any more.
    while not record.exists() or own & set(record.read_text().split()):
        if time.monotonic() > deadline:
            raise SetupError(
                f"stopping {node.name}",
                f"the supervisor did not answer within {_SUPERVISOR_SECONDS:.0f} s",
                f"see {instance.logs}/supervisor.log",
            )
        time.sleep(0.02)
    node_teardown.switch_off(instance, node, grace_seconds, progress)


def supervisor_pid(instance: Instance) -> int:
    """The process ID of the running supervisor; 0 if none runs."""
    try:
        pid = int((instance.state / "supervisor.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return 0
    return pid if b"supervise" in command and str(instance.state).encode() in command else 0


def _reload_supervisor(instance: Instance) -> bool:
    """Let the running supervisor reload its process list; returns False if none runs.

    A supervisor with outdated code is stopped: the next one adopts its processes and replaces outdated ones.
    """
    pid = supervisor_pid(instance)
    if not pid:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # With the pidfd open, the process ID cannot be reused by another process.
        if supervisor_pid(instance) != pid:
            return False
        is_current = supervisor.has_settings(pid, processes.supervisor(instance))
        # SIGTERM would make it stop its children, too.
        signal.pidfd_send_signal(handle, signal.SIGHUP if is_current else signal.SIGKILL)
        if not is_current:
            _wait_end(handle, "the supervisor of another version")
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return is_current


def _wait_end(handle: int, what: str) -> None:
    """Wait until a killed process has ended. Raises SetupError."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    if not poller.poll(_KILLED_SECONDS * 1000):
        raise SetupError(f"ending {what}", f"it has not ended {_KILLED_SECONDS} s after it was killed")


def _load_or_create(options: UpOptions) -> Instance:
    """Load the instance, or create one with a free subnet and port. Raises SetupError."""
    state = options.state.resolve()
    if state.is_relative_to("/run") or state.is_relative_to("/var/run"):
        raise SetupError(
            f"state directory {state}",
            "nodes have a /run of their own, so it would not be visible in them",
            "choose a directory elsewhere",
            code=ExitCode.UNUSABLE,
        )
    state_directory.make_directory(state)
    with instances.machine_lock():
        existing = instances.load(state)
        if existing is not None:
            port = options.api_port or existing.api_port
            _check_still_free(existing, port)
            present = len(existing.nodes())
            if options.nodes and options.nodes < present:
                raise SetupError(
                    f"--nodes {options.nodes}",
                    f"the cluster has {present} nodes; this adds nodes and takes none away",
                    program.command("node remove NAME", state),
                    code=ExitCode.UNUSABLE,
                )
            names = node_places.with_nodes(existing.node_names, options.nodes or present)
            changed = replace(
                existing,
                api_port=port,
                node_names=names,
                host_image=options.host_image,
                api_flags=options.api_flags or existing.api_flags,
                external_ranges=options.external_ranges or existing.external_ranges,
                image_accounts=options.image_accounts or existing.image_accounts,
            )
            changed.save()
            return changed
        others = instances.registered()
        identifier = instances.instance_id(state)
        taken = machine.used_networks()
        taken += [ipaddress.IPv4Network(str(entry["subnet"])) for entry in others]
        ports = {int(str(entry["api_port"])) for entry in others}
        made = Instance(
            state=state,
            id=identifier,
            subnet=instances.choose_subnet(identifier, taken),
            api_port=options.api_port or instances.choose_port(ports),
            node_names=node_places.with_nodes((), options.nodes or 1),
            host_image=options.host_image,
            mtu=machine.uplink_mtu(),
            api_flags=options.api_flags,
            external_ranges=options.external_ranges,
            image_accounts=options.image_accounts,
        )
        made.save()
    return made


def _check_still_free(instance: Instance, port: int) -> None:
    """Check that the subnet and port of a stopped instance are still free; a running one must keep its port.

    Raises SetupError.
    """
    again = program.command("up", instance.state)
    if supervisor_pid(instance) or any(namespaces.exists(node) for node in instance.nodes()):
        if port != instance.api_port:
            remedy = f"{program.command('down', instance.state)}, then {again} --port {port}"
            raise SetupError(f"port {port}", f"the cluster runs with port {instance.api_port}", remedy)
        return
    for other in instances.registered():
        if other["id"] != instance.id and other["subnet"] == instance.subnet:
            remedy = f"stop that one, or start anew: {program.command('reset', instance.state)}"
            raise SetupError(f"subnet {instance.subnet}", f"{other['state']} uses it as well", remedy)
    if not instances.is_port_free(port):
        remedy = f"stop it, or choose another port: {again} --port NUMBER"
        raise SetupError(f"port {port}", "another program listens on it", remedy)


def _prepare_node(instance: Instance, node: NodeLayout, progress: Progress) -> None:
    node.directory.mkdir(parents=True, exist_ok=True)
    namespaces.create(instance, node)
    node_network.connect(instance, node)
    node_network.plug(instance, node)
    if node.name in instance.isolated_nodes:
        again = program.command(f"node start {node.name}", instance.state)
        progress(f"{node.name} stays isolated: {again}")
    cni = node.directory / "cni-config"
    cni.mkdir(exist_ok=True)
    instances.write_atomically(cni / "10-kindling.conflist", node_network.render_cni(node, instance.mtu))
    config = containerd.render_config(
        node.directory,
        sandbox_image=images.SANDBOX_IMAGE,
        snapshotter=_snapshotter(node.directory),
        restrict_oom=not machine.has_sys_resource(),
    )
    instances.write_atomically(node.directory / "containerd.toml", config.encode())


def _snapshotter(directory: Path) -> str:
    """The containerd snapshotter: overlayfs if the file system below `directory` supports it, else native
    (copies).
    """
    kind = machine.run(["stat", "--file-system", "--format=%T", str(directory)], what="file system").strip()
    return "native" if kind in ("overlayfs", "tmpfs", "nfs", "fuseblk") else "overlayfs"


def _launch_supervisor(instance: Instance) -> None:
    log = (instance.logs / "supervisor.log").open("ab")
    spec = processes.supervisor(instance)
    # SIGHUP is ignored until the supervisor has installed its handler: a concurrent `up` may send it at once.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with log:
            launched = subprocess.Popen(
                list(spec.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={**_clean_environment(), **spec.environment},
            )
    finally:
        signal.signal(signal.SIGHUP, before)
    instances.write_atomically(instance.state / "supervisor.pid", str(launched.pid).encode())


def _clean_environment() -> dict[str, str]:
    """The environment of the long-running processes: of the caller's, only the variables that programs
    need.
    """
    kept = {key: value for key, value in os.environ.items() if key in _KEPT_VARIABLES}
    # Proxy variables are kept: images may have to be pulled through a proxy.
    kept |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "2"}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_ready(instance: Instance, progress: Progress, logged: int) -> None:
    """Wait until the API answers, every node is ready and default accounts exist. Raises SetupError.

    The API server's log after the first `logged` bytes shows whether it refused to start.
    """
    deadline = time.monotonic() + READY_SECONDS
    last = ""
    while missing := missing_parts(instance):
        if missing != last:
            progress(f"waiting for {missing}")
            last = missing
        if not supervisor_pid(instance):
            raise SetupError(
                "starting the cluster", "its supervisor ended", f"see {instance.logs}/supervisor.log"
            )
        if refused := refusal(instance.logs / "apiserver.log", logged):
            raise SetupError("starting the API server", refused)
        if time.monotonic() > deadline:
            raise SetupError(
                "starting the cluster",
                f"still waiting for {missing} after {READY_SECONDS:.0f} s",
                f"see the logs in {instance.logs}",
            )
        time.sleep(0.1)
