"""``kindling up``: starts a new cluster, or the missing processes of an existing one, and waits until it is
ready.
"""

from __future__ import annotations

import ipaddress
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
    network_definitions,
    node_links,
    node_network,
    node_places,
    node_teardown,
    nodeimages,
    processes,
    state_directory,
    storage_pool,
    supervision,
)
from kindling.cluster import (
    instance as instances,
)
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.image_names import SANDBOX_IMAGE
from kindling.cluster.instance import Instance, NodeLayout
from kindling.cluster.readiness import missing_parts, refusal, request
from kindling.metrics import manifests as metrics
from kubecore.json import get_str

Progress = Callable[[str], None]
"""Told what is being done or waited for."""

READY_SECONDS = 90.0
_SUPERVISOR_SECONDS = 60.0
"""It stops the processes of a node one after the other."""


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
    node_options: tuple[str, ...] = ()
    node_links: tuple[str, ...] = ()
    """Links that nodes get beside those that they have."""
    isolate_networks: bool | None = None
    """Whether pods use definitions of secondary networks of their own namespace only; None: as before."""
    ip_family: str | None = None
    """One of `instance.IP_FAMILIES`; None leaves it as it is, and a new cluster has both."""


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
    if instance.ip_family == instances.DUAL and not instance.has_ipv6:
        progress("this machine has IPv6 switched off: the cluster has IPv4 alone")
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
    node_links.create(instance)
    for node in instance.running_nodes():
        progress(f"preparing {node.name}")
        _prepare_node(instance, node, progress)
    if has_pool:
        storage_pool.mount(instance)
    archives = images.build_images(instance.state / "images", host_image=instance.host_image)
    instance.logs.mkdir(exist_ok=True)
    logged = _size(instance.logs / "apiserver.log")
    supervision.run_processes(instance)
    for node in instance.stopped():
        progress(f"{node.name} stays stopped: {program.command(f'node start {node.name}', instance.state)}")
        switch_off(instance, node, 0, progress)  # stopping it may have been interrupted
    nodeimages.import_built_in(instance, archives, progress)
    wait_ready(instance, progress, logged)
    network_definitions.install(instance)
    _offer_metrics(instance)
    wait_ready(instance, progress, logged)
    return instance


def switch_off(instance: Instance, node: NodeLayout, grace_seconds: float, progress: Progress) -> None:
    """End a node that is recorded as stopped. May be repeated. Raises SetupError."""
    record = instance.state / processes.SUPERVISED
    record.unlink(missing_ok=True)
    supervision.run_processes(instance)
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


def _load_or_create(options: UpOptions) -> Instance:
    """Load the instance with the changes of `options`, or create one. Raises SetupError."""
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
        wanted = _new_instance(state, options) if existing is None else _changed(existing, options)
        wanted = _with_families(wanted, options)
        wanted.save()
    return wanted


def _changed(existing: Instance, options: UpOptions) -> Instance:
    """An instance with what `options` say of it; what they leave out stays. Raises SetupError."""
    port = options.api_port or existing.api_port
    _check_still_free(existing, port)
    present = len(existing.nodes())
    if options.nodes and options.nodes < present:
        raise SetupError(
            f"--nodes {options.nodes}",
            f"the cluster has {present} nodes; this adds nodes and takes none away",
            program.command("node remove NAME", existing.state),
            code=ExitCode.UNUSABLE,
        )
    isolate = existing.isolate_networks if options.isolate_networks is None else options.isolate_networks
    return replace(
        existing,
        api_port=port,
        node_names=node_places.with_nodes(existing.node_names, options.nodes or present),
        host_image=options.host_image,
        api_flags=options.api_flags or existing.api_flags,
        external_ranges=options.external_ranges or existing.external_ranges,
        image_accounts=options.image_accounts or existing.image_accounts,
        node_options=options.node_options or existing.node_options,
        wants_storage=existing.wants_storage if options.storage is None else options.storage > 0,
        node_links=_links((*existing.node_links, *options.node_links)),
        isolate_networks=isolate,
    )


def _new_instance(state: Path, options: UpOptions) -> Instance:
    """An instance with a subnet and a port that are free. Raises SetupError."""
    others = instances.registered()
    identifier = instances.instance_id(state)
    taken = machine.used_networks()
    taken += [ipaddress.IPv4Network(str(entry["subnet"])) for entry in others]
    ports = {int(str(entry["api_port"])) for entry in others}
    if options.api_port:
        _check_port(state, options.api_port)
    return Instance(
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
        node_options=options.node_options,
        wants_storage=options.storage != 0,
        node_links=_links(options.node_links),
        isolate_networks=bool(options.isolate_networks),
    )


def _links(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each of the nodes' links once: they are added, never taken away. Raises SetupError."""
    found = tuple(dict.fromkeys(names))
    if len(found) > node_links.MAX_LINKS:
        limit = f"nodes have at most {node_links.MAX_LINKS} links of this kind"
        raise SetupError("--node-link", limit, code=ExitCode.UNUSABLE)
    return found


def _with_families(instance: Instance, options: UpOptions) -> Instance:
    """The instance with IPv6, if the administrator wants it and the machine has it. Raises SetupError."""
    wanted = options.ip_family or instance.ip_family
    if wanted == instances.IPV4 and instance.subnet6:
        raise SetupError(
            f"--ip-family {wanted}",
            "the cluster has IPv6 as well, and its services have such addresses",
            f"to start anew: {program.command('reset', instance.state)}",
            code=ExitCode.UNUSABLE,
        )
    if wanted == instances.IPV4 or not machine.has_ipv6():
        return replace(instance, ip_family=wanted, has_ipv6=False)
    subnet = instance.subnet6
    if not subnet:
        others = [str(entry.get("subnet6") or "") for entry in instances.registered()]
        taken = machine.used_ipv6_networks() + [ipaddress.IPv6Network(text) for text in others if text]
        subnet = instances.choose_subnet6(instance.id, taken)
    return replace(instance, ip_family=wanted, subnet6=subnet, has_ipv6=True)


def _check_still_free(instance: Instance, port: int) -> None:
    """Check that the subnet and port of a stopped instance are still free; a running one must keep its port.

    Raises SetupError.
    """
    if supervision.supervisor_pid(instance) or any(namespaces.exists(node) for node in instance.nodes()):
        if port != instance.api_port:
            down, again = (program.command(each, instance.state) for each in ("down", "up"))
            remedy = f"{down}, then {again} --port {port}"
            raise SetupError(f"port {port}", f"the cluster runs with port {instance.api_port}", remedy)
        return
    for other in instances.registered():
        if other["id"] != instance.id and other["subnet"] == instance.subnet:
            remedy = f"stop that one, or start anew: {program.command('reset', instance.state)}"
            raise SetupError(f"subnet {instance.subnet}", f"{other['state']} uses it as well", remedy)
    _check_port(instance.state, port)


def _check_port(state: Path, port: int) -> None:
    """Raises SetupError when a program listens on the port."""
    if not instances.is_port_free(port):
        remedy = f"stop it, or choose another port: {program.command('up', state)} --port NUMBER"
        raise SetupError(f"port {port}", "another program listens on it", remedy)


def _prepare_node(instance: Instance, node: NodeLayout, progress: Progress) -> None:
    node.directory.mkdir(parents=True, exist_ok=True)
    namespaces.create(instance, node)
    node_network.connect(instance, node)
    node_links.connect(instance, node)
    node_network.plug(instance, node)
    if node.name in instance.isolated_nodes:
        again = program.command(f"node start {node.name}", instance.state)
        progress(f"{node.name} stays isolated: {again}")
    cni = node.directory / "cni-config"
    cni.mkdir(exist_ok=True)
    instances.write_atomically(cni / "10-kindling.conflist", node_network.render_cni(node, instance.mtu))
    config = containerd.render_config(
        node.directory,
        sandbox_image=SANDBOX_IMAGE,
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


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _offer_metrics(instance: Instance) -> None:
    """Create what is missing of the metrics API's objects; another server's stay. Raises SetupError."""
    for resource, document in metrics.objects((instance.pki / "ca.crt").read_bytes()):
        metadata = document["metadata"]
        namespace = get_str(metadata, "namespace") or None
        status, answer = request(instance, "POST", resource.path(namespace), document)
        if status not in (201, 409):
            what = f"the metrics API's {resource.kind} {metadata['name']}"
            raise SetupError(what, f"the API server answered {status}: {answer}")


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
        if not supervision.supervisor_pid(instance):
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
