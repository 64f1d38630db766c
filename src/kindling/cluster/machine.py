"""Running the machine's programs during setup, and reading the machine's network state."""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from kindling.cluster.errors import ExitCode, SetupError

NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "busybox": "busybox-static",
    "mkfs.xfs": "xfsprogs",
}
"""Programs and the Debian packages that bring them."""
_DISABLE_IPV6 = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")


def run(command: Sequence[str], *, what: str, stdin: str | None = None, check: bool = True) -> str:
    """Run a program and return its standard output. Raises SetupError naming `what` failed."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise SetupError(what, (done.stderr or done.stdout).strip() or f"exit status {done.returncode}")
    return done.stdout


def check_machine() -> None:
    """Raise SetupError when the machine cannot run a cluster, listing everything that is missing."""
    if os.geteuid() != 0:
        raise SetupError(
            "starting a cluster", "it needs root", "run it with sudo", code=ExitCode.NOT_PERMITTED
        )
    missing = sorted({package for program, package in NEEDED.items() if shutil.which(program) is None})
    if not Path("/usr/lib/cni/bridge").exists():
        missing.append("containernetworking-plugins")
    if missing:
        raise SetupError(
            "starting a cluster",
            "packages are missing: " + " ".join(missing),
            "apt install " + " ".join(missing),
            code=ExitCode.UNUSABLE,
        )


def has_sys_resource() -> bool:
    """Whether this process holds CAP_SYS_RESOURCE (bit 24)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 24 & 1)
    return False


def ip_json(*arguments: str) -> list[dict[str, Any]]:
    """The JSON output of ``ip``."""
    output = run(["ip", "-j", *arguments], what=f"ip {' '.join(arguments)}")
    answer: list[dict[str, Any]] = orjson.loads(output or "[]")
    return answer


def has_ipv6() -> bool:
    """Whether interfaces of this network namespace can have IPv6 addresses."""
    try:
        return _DISABLE_IPV6.read_text().strip() == "0"
    except FileNotFoundError:  # a kernel without IPv6
        return False


def used_ipv6_networks() -> list[ipaddress.IPv6Network]:
    """IPv6 networks that the machine's routes and addresses use (the default route aside)."""
    found = [str(route.get("dst", "default")) for route in ip_json("-6", "route", "show", "table", "all")]
    networks = [ipaddress.IPv6Network(text) for text in found if ":" in text]
    return [network for network in networks if network.prefixlen > 0 and not network.is_multicast]


def learned_ipv6_uplinks() -> set[str]:
    """Interfaces with a default route that a router has announced."""
    routes = ip_json("-6", "route", "show", "default", "proto", "ra")
    return {str(route["dev"]) for route in routes if "dev" in route}


def used_networks() -> list[ipaddress.IPv4Network]:
    """IPv4 networks that the machine's routes, addresses and resolvers use (the default route aside)."""
    found: list[str] = []
    for route in ip_json("-4", "route", "show", "table", "all"):
        found += [str(route.get("dst", "default")), str(route.get("gateway", "default"))]
    found += [
        line.split()[1]
        for line in Path("/etc/resolv.conf").read_text().splitlines()
        if line.startswith("nameserver ") and len(line.split()) > 1
    ]
    networks = []
    for text in found:
        try:
            networks.append(ipaddress.IPv4Network(text, strict=False))
        except ValueError:
            continue
    return [network for network in networks if network.prefixlen > 0]


def uplink_mtu() -> int:
    """The MTU of the default route's device, 1500 without one."""
    routes = ip_json("-4", "route", "show", "default")
    if not routes:
        return 1500
    links = ip_json("link", "show", "dev", str(routes[0]["dev"]))
    return min(1500, int(links[0].get("mtu", 1500))) if links else 1500


def write_sysctl(name: str, value: str, *, required: bool = True) -> None:
    """Set a kernel parameter. Raises SetupError when it is `required` and cannot be set."""
    # As sysctl(8) reads names: with slashes in it, a dot is one (of an interface's name).
    path = Path("/proc/sys") / (name if "/" in name else name.replace(".", "/"))
    try:
        if path.read_text().strip() != value:
            path.write_text(value)
    except OSError as error:
        if required:
            raise SetupError(f"sysctl {name}={value}", str(error)) from error


def nft(ruleset: str, *, what: str, namespace: Path | None = None, check: bool = True) -> None:
    """Load a ruleset atomically, in the network namespace at `namespace` or here."""
    prefix = ["nsenter", f"--net={namespace}"] if namespace else []
    run([*prefix, "nft", "-f", "-"], what=what, stdin=ruleset, check=check)
