"""Network namespaces with links between them, for tests of what the kernel lets pass."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_NETWORK = 0x40000000
_ALL_PROTOCOLS = 3
_DIAL = """
import socket, sys
host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
with socket.create_connection((host, port), timeout=seconds) as made:
    sys.stdout.buffer.write(made.recv(64))
"""
_SERVE = """
import socket, sys, threading
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family)
print(flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), listener.shutdown(socket.SHUT_RDWR)), daemon=True).start()
while True:
    try:
        made, peer = listener.accept()
    except OSError:
        break
    with made:
        made.sendall(b"answered " + peer[0].encode())
"""


@dataclass
class Namespace:
    """One network namespace, named below /run/netns while the test runs."""

    name: str
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: str, stdin: bytes | None = None, check: bool = True) -> str:
        """The output of a command in it, which must succeed if not said otherwise."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *command],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            check=False,
        )
        assert not check or done.returncode == 0, (command, done.stderr.decode())
        return done.stdout.decode()

    def nft(self, ruleset: str | dict[str, Any]) -> None:
        """Load a ruleset, as text or as JSON."""
        if isinstance(ruleset, str):
            self.run("nft", "-f", "-", stdin=ruleset.encode())
        else:
            self.run("nft", "-j", "-f", "-", stdin=json.dumps(ruleset).encode())

    def sysctl(self, name: str, value: str) -> None:
        """Set a kernel parameter of the namespace."""
        self.run("sh", "-c", f"echo {value} > /proc/sys/{name.replace('.', '/')}")

    def serve(self, address: str, port: int) -> None:
        """Answer TCP connections until the test ends."""
        command = ["ip", "netns", "exec", self.name, sys.executable, "-c", _SERVE, address, str(port)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"\n"
        self.servers.append(server)

    def reaches(self, address: str, port: int, seconds: float = 5.0) -> bool:
        """Whether a TCP connection from here is answered."""
        return bool(self.seen_as(address, port, seconds))

    def seen_as(self, address: str, port: int, seconds: float = 5.0) -> str:
        """The address that a server sees of here; the empty string without an answer."""
        answer = self.run(sys.executable, "-c", _DIAL, address, str(port), str(seconds), check=False)
        return answer.removeprefix("answered ")

    def inside(self, act: Callable[[], T]) -> T:
        """What `act` returns, called in the namespace: sockets that it makes stay there."""
        return called_in(Path(f"/run/netns/{self.name}"), act)

    def mac(self, link: str) -> str:
        """The hardware address of a link."""
        return str(json.loads(self.run("ip", "-j", "link", "show", link))[0]["address"])

    @contextmanager
    def packets(self, link: str) -> Iterator[socket.socket]:
        """A raw socket on a link of the namespace: sends and receives whole frames."""
        with packets_in(Path(f"/run/netns/{self.name}"), link) as raw:
            yield raw

    def close(self) -> None:
        """Stop the servers and forget the namespace."""
        for server in self.servers:
            server.communicate(timeout=10)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


@contextmanager
def packets_in(namespace: Path, link: str) -> Iterator[socket.socket]:
    """A raw socket on a link of the network namespace that a file stands for."""

    def opened() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        raw.bind((link, 0))
        return raw

    with called_in(namespace, opened) as raw:
        yield raw


def called_in(namespace: Path, act: Callable[[], T]) -> T:
    """What `act` returns in the network namespace that a file stands for."""

    def there() -> T:
        descriptor = os.open(namespace, os.O_RDONLY)
        try:
            setns(descriptor)
            return act()
        finally:
            os.close(descriptor)

    # A namespace is its thread's, so only a thread that ends afterwards goes there.
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(there).result()


def setns(descriptor: int) -> None:
    """Move this thread into the network namespace of a descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def namespaces(*names: str) -> Iterator[list[Namespace]]:
    """New namespaces with their loopback up."""
    made: list[Namespace] = []
    try:
        for name in names:
            full = f"vpt{os.getpid()}-{name}"
            subprocess.run(["ip", "netns", "add", full], check=True)
            made.append(Namespace(full))
            made[-1].run("ip", "link", "set", "lo", "up")
        yield made
    finally:
        for namespace in made:
            namespace.close()


def connect(one: Namespace, link: str, other: Namespace, peer: str) -> None:
    """A pair of links, each in one namespace and up."""
    one.run("ip", "link", "add", link, "type", "veth", "peer", "name", peer, "netns", other.name)
    one.run("ip", "link", "set", link, "up")
    other.run("ip", "link", "set", peer, "up")
