"""One cluster on this machine: its directory, names, addresses and ports.

Names of everything that an instance creates on the machine contain its ID (a hash of the state directory's
path), so that several instances can run at the same time. Choices such as subnet and port are stored in
``instance.json``.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from kindling import program
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.state_directory import LAYOUT

DEFAULT_STATE = Path("/var/lib/kindling")
REGISTRY = Path("/run/kindling")
"""One file per instance of this machine, so that instances see each other's choices."""

TUPLES = (
    "node_names",
    "api_flags",
    "external_ranges",
    "image_accounts",
    "node_options",
    "node_links",
    "stopped_nodes",
    "isolated_nodes",
)
"""Fields of an instance that are lists in its file."""
DUAL, IPV4 = IP_FAMILIES = ("dual", "ipv4")
"""The choices of ``--ip-family``."""
_FIRST_PORT = 6443


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Names and addresses of one node, of each family, IPv4 first. `index` counts from 1."""

    name: str
    index: int
    directory: Path
    addresses: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    host_link: str

    @property
    def address(self) -> str:
        """The node's IPv4 address, at which its servers listen."""
        return self.addresses[0]

    @property
    def pod_gateways(self) -> tuple[str, ...]:
        """The node's addresses in the pod network: the first ones, which the CNI bridge plugin uses as
        gateways.
        """
        return tuple(str(ipaddress.ip_network(cidr).network_address + 1) for cidr in self.pod_cidrs)

    @property
    def registered(self) -> Path:
        """Holds the process id of the agent once it has reported the node's status."""
        return self.directory / "registered"

    @property
    def namespaces(self) -> Path:
        """The directory of the files mnt, net and uts, which keep the node's namespaces alive."""
        return self.directory / "ns"


@dataclass(frozen=True)
class Instance:
    """The layout of an instance. `subnet` is a /16 that holds nodes, pods and services, `subnet6` a /48."""

    state: Path
    id: str
    subnet: str
    api_port: int
    node_names: tuple[str, ...]
    """A node's place decides its addresses; the place of a removed node is empty text."""
    host_image: bool = True
    mtu: int = 1500
    api_flags: tuple[str, ...] = field(default=())
    external_ranges: tuple[str, ...] = ()
    """Where addresses that services claim from outside the cluster take effect."""
    image_accounts: tuple[str, ...] = ()
    """Service accounts (``namespace/name``) that may use the host image."""
    node_options: tuple[str, ...] = ()
    """Options of every node (``NAME=VALUE``), see `kindling.node.options`."""
    node_links: tuple[str, ...] = ()
    """Links that every node has beside the one to the cluster, for secondary networks."""
    isolate_networks: bool = False
    """Pods use definitions of secondary networks of their own namespace and of `default` only."""
    subnet6: str = ""
    """Kept once it was chosen, because services have addresses of it."""
    ip_family: str = DUAL
    """What the administrator wants: IPv4 alone, or both families where the machine has them."""
    has_ipv6: bool = False
    """Whether the cluster has both families at present."""
    wants_storage: bool = True
    """Whether there is to be a storage pool, where the machine can have one."""
    stopped_nodes: tuple[str, ...] = ()
    """Nodes that stay as if powered off until ``node start``."""
    isolated_nodes: tuple[str, ...] = ()
    """Nodes whose link is cut until ``node start``."""

    @property
    def subnets(self) -> tuple[str, ...]:
        """The networks in use, IPv4 first."""
        return (self.subnet, self.subnet6) if self.has_ipv6 else (self.subnet,)

    @property
    def bridge(self) -> str:
        """The name of the host's bridge for the nodes' links (15 characters at most)."""
        return f"kd{self.id}"

    @property
    def table(self) -> str:
        """The nftables table of this instance on the host and in its nodes."""
        return f"kindling-{self.id}"

    @property
    def cgroup(self) -> str:
        """The cgroup below which all pods of the instance live."""
        return f"/kindling-{self.id}"

    def _addresses(self, network: int, host: int) -> tuple[str, ...]:
        """Of each family, an address in one of the 256 networks: x.x.NETWORK.HOST and x:x:x:NETWORK::HOST."""
        bits = (8, 64)
        return tuple(
            str(ipaddress.ip_network(subnet).network_address + (network << shift) + host)
            for subnet, shift in zip(self.subnets, bits, strict=False)
        )

    def _networks(self, network: int, *prefixes: int) -> tuple[str, ...]:
        found = zip(self._addresses(network, 0), prefixes, strict=False)
        return tuple(f"{address}/{prefix}" for address, prefix in found)

    @property
    def gateways(self) -> tuple[str, ...]:
        """The host's addresses on the bridge."""
        return self._addresses(0, 1)

    @property
    def gateway(self) -> str:
        """The host's IPv4 address on the bridge; the API server listens there too."""
        return self.gateways[0]

    @property
    def node_subnets(self) -> tuple[str, ...]:
        """The addresses of the nodes and of the gateway."""
        return self._networks(0, 24, 64)

    @property
    def service_cidrs(self) -> tuple[str, ...]:
        """Addresses of services. Kubernetes takes 20 bits at most."""
        return self._networks(240, 20, 112)

    @property
    def kubernetes_service(self) -> str:
        """The address of default/kubernetes."""
        return self._addresses(240, 1)[0]

    @property
    def dns_service(self) -> str:
        """The resolver that pods get."""
        return self._addresses(240, 10)[0]

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        """Log files of the processes, one per component."""
        return self.state / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state / "kubeconfig"

    @property
    def api_url(self) -> str:
        """The URL of the API for programs on the host."""
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def internal_api_url(self) -> str:
        """The URL of the API for nodes and pods."""
        return f"https://{self.gateway}:{self.api_port}"

    def nodes(self) -> list[NodeLayout]:
        """The layout of every node, also of stopped ones."""
        return [self.node(name) for name in self.node_names if name]

    def running_nodes(self) -> list[NodeLayout]:
        """The layout of every node that is not stopped."""
        return [node for node in self.nodes() if node.name not in self.stopped_nodes]

    def stopped(self) -> list[NodeLayout]:
        """The layout of every stopped node."""
        return [node for node in self.nodes() if node.name in self.stopped_nodes]

    def node_cgroup(self, name: str) -> str:
        """The cgroup below which all pods of node `name` live."""
        return f"{self.cgroup}/{name}"

    def node(self, name: str) -> NodeLayout:
        """The layout of node `name`. Raises SetupError for an unknown one."""
        if not name or name not in self.node_names:
            known = ", ".join(filter(None, self.node_names))
            raise SetupError(f"node {name!r}", "there is none", f"one of {known}", code=ExitCode.UNUSABLE)
        index = self.node_names.index(name) + 1
        return NodeLayout(
            name=name,
            index=index,
            directory=self.state / "nodes" / name,
            addresses=self._addresses(0, 10 + index),
            pod_cidrs=self._networks(index, 24, 64),
            host_link=f"kd{self.id}n{index}",
        )

    def save(self) -> None:
        """Write ``instance.json`` and the registry's entry."""
        document = asdict(self)
        document["state"] = str(self.state)
        encoded = orjson.dumps(document, option=orjson.OPT_INDENT_2)
        write_atomically(self.state / LAYOUT, encoded)
        REGISTRY.mkdir(exist_ok=True)
        write_atomically(REGISTRY / f"{self.id}.json", encoded)


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file atomically: readers see the old or the new content, also after a power failure.

    Until the directory is synced, a power failure may bring back the old content.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(descriptor)
    temporary.replace(path)


def instance_id(state: Path) -> str:
    """Eight hexadecimal digits standing for a state directory."""
    return hashlib.sha256(str(state).encode()).hexdigest()[:8]


def load(state: Path) -> Instance | None:
    """Load the instance in `state`; None if there is none."""
    state = state.resolve()
    try:
        content = (state / LAYOUT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise SetupError(
            f"cluster in {state}", str(error), "run this as root", code=ExitCode.NOT_PERMITTED
        ) from error
    try:
        document = orjson.loads(content)
        document["state"] = Path(document["state"])
        for name in TUPLES:
            document[name] = tuple(document.get(name, ()))
        instance = Instance(**document)
    except (ValueError, KeyError, TypeError) as error:
        remedy = "put a copy of the file in its place, or move the directory away and start anew"
        raise SetupError(f"cluster in {state}", f"{LAYOUT} is damaged ({error})", remedy) from error
    if instance.state != state:
        raise SetupError(
            f"state directory {state}",
            f"it was made as {instance.state} and moved since",
            "move it back, or remove it and start anew",
        )
    return instance


def require(state: Path) -> Instance:
    """The instance in `state`. Raises SetupError when there is none."""
    instance = load(state)
    if instance is None:
        raise SetupError(
            f"cluster in {state}",
            "there is none",
            program.command("up", state),
        )
    return instance


@contextmanager
def node_lock(state: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """A lock for everything that adds, starts, stops or removes nodes of the instance in `state`.

    `on_wait` is called if another process holds it. A directory that is not there has no nodes.
    """
    try:
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def machine_lock() -> Iterator[None]:
    """A lock for choosing names, subnets and ports that other instances could choose at the same time."""
    REGISTRY.mkdir(exist_ok=True)
    with (REGISTRY / "lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def registered() -> list[dict[str, object]]:
    """The registry entries of all instances started on this machine since it booted."""
    entries = []
    for path in sorted(REGISTRY.glob("*.json")):
        try:
            entries.append(orjson.loads(path.read_bytes()))
        except (FileNotFoundError, orjson.JSONDecodeError):
            continue
    return entries


def unregister(instance: Instance) -> bool:
    """Remove an instance from the registry; returns whether it was the last one."""
    with machine_lock():
        (REGISTRY / f"{instance.id}.json").unlink(missing_ok=True)
        last = not any(REGISTRY.glob("*.json"))
        if last:
            for name in ("lock", "mount-points"):
                (REGISTRY / name).unlink(missing_ok=True)
            REGISTRY.rmdir()
    return last


def choose_subnet(identifier: str, taken: list[ipaddress.IPv4Network]) -> str:
    """A free /16 of 10.64.0.0/10. The search starts at a place derived from `identifier`, so that an instance
    usually gets the same one again.
    """
    start = int(identifier, 16) % 64
    for offset in range(64):
        candidate = ipaddress.IPv4Network(f"10.{64 + (start + offset) % 64}.0.0/16")
        if not any(candidate.overlaps(network) for network in taken):
            return str(candidate)
    raise SetupError("choosing a subnet", "all of 10.64.0.0/10 is in use on this machine", "free a /16 of it")


def choose_subnet6(identifier: str, taken: Sequence[ipaddress.IPv6Network]) -> str:
    """A free /48 of the unique local addresses (RFC 4193), which contains `identifier`, so that an instance
    usually gets the same one again.
    """
    for first in range(0x6B, 0x100):
        candidate = ipaddress.IPv6Network(f"fd{first:02x}:{identifier[:4]}:{identifier[4:]}::/48")
        if not any(candidate.overlaps(network) for network in taken):
            return str(candidate)
    raise SetupError("choosing a subnet", f"all fdXX:{identifier[:4]}:{identifier[4:]}::/48 are in use here")


def is_port_free(port: int) -> bool:
    """Whether no program listens on a TCP port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def choose_port(taken: set[int]) -> int:
    """A free TCP port for the API server, 6443 when possible."""
    for port in range(_FIRST_PORT, _FIRST_PORT + 500):
        if port not in taken and is_port_free(port):
            return port
    raise SetupError("choosing a port", f"{_FIRST_PORT} and the 500 after it are in use", "stop some servers")
