"""``up``, ``down``, ``status``, ``reset``, ``backup``, ``restore``, ``kubeconfig`` and ``logs``.

They are about the embedded cluster, which is kindling's, another program: it is started through its command
line and used through its kubeconfig, like any other Kubernetes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from virtplane.cli.terminal import EXIT_UNUSABLE, CommandError, report, require_root
from virtplane.operator.components import COMPONENTS
from virtplane.programs import own_program

DEFAULT_STATE = Path("/var/lib/virtplane")
NAMESPACE = "kubevirt"
HOST_IMAGE = "kindling.local/host:latest"
"""kindling's name for the image that is this machine itself; everywhere else an ordinary reference."""
_FLAGS = [
    f"--host-image-account={NAMESPACE}/{account}"
    for account in sorted({component.service_account for component in COMPONENTS.values()})
]
"""Nobody but the product's own accounts may run containers of the host image."""


def kindling(*arguments: str, state: Path) -> int:
    """Run kindling's command line and return its exit code. Raises CommandError where it is not installed."""
    try:
        program = own_program("kindling")
    except FileNotFoundError as error:
        do = "Use a checkout, or put virtplane on a cluster that you have: virtplane install"
        raise CommandError(
            "There is no embedded cluster here.", str(error), do, code=EXIT_UNUSABLE
        ) from error
    command, *rest = arguments
    return subprocess.run([program, command, "--state", str(state), *rest], check=False).returncode


def start(state: Path, nodes: int, external_ranges: Sequence[str] = ()) -> None:
    """Start the cluster and install virtplane on it; nothing changes where both are there.

    Services' external addresses take effect in `external_ranges`. Raises CommandError.
    """
    require_root("up")
    ranges = [f"--external-range={text}" for text in external_ranges]
    if kindling("up", "--nodes", str(nodes), *_FLAGS, *ranges, state=state):
        raise CommandError(
            "The cluster did not start.", "kindling's message stands above.", f"Logs: {state}/logs"
        )
    asyncio.run(_install(state))


async def _install(state: Path) -> None:
    from kubecore.client import Client
    from kubecore.client.kubeconfig import load_kubeconfig
    from virtplane.cli.install import install
    from virtplane.compute.handler import kvm
    from virtplane.operator.manifests import InstallOptions

    verdict = await kvm.probe()
    async with Client(load_kubeconfig(str(state / "kubeconfig"))) as client:
        await install(
            client,
            InstallOptions(
                namespace=NAMESPACE,
                image=HOST_IMAGE,
                layout="compact",
                use_emulation=not verdict.usable,
                dense=True,
                require_webhook_certificate=True,
            ),
        )


def _up(options: argparse.Namespace) -> int:
    start(options.state, options.nodes, options.external_range)
    kubeconfig = options.state / "kubeconfig"
    sys.stdout.write(f"Ready. Use it with:\n  export KUBECONFIG={kubeconfig}\n")
    return 0


def _pass_on(options: argparse.Namespace) -> int:
    if options.command in ("down", "reset", "backup", "restore"):
        require_root(options.command)
    arguments = list(getattr(options, "rest", ()))
    if options.command == "down":
        arguments.append(f"--grace-period={options.grace_period}")
    return kindling(options.command, *arguments, state=options.state)


def _kubeconfig(options: argparse.Namespace) -> int:
    path = options.state / "kubeconfig"
    try:
        sys.stdout.write(path.read_text())
    except PermissionError as error:
        raise CommandError(
            f"{path} cannot be read.", str(error), "Run this as root, or through sudo.", code=3
        ) from error
    except FileNotFoundError as error:
        raise CommandError(
            "There is no cluster.", f"{path} does not exist.", "Start one: ./virtplane up"
        ) from error
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="virtplane", description="The embedded cluster.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, summary in (
        ("up", _up, "start the cluster with virtplane on it"),
        ("down", _pass_on, "shut the guests down and stop the cluster; its state stays"),
        ("status", _pass_on, "say what runs"),
        ("reset", _pass_on, "stop the cluster and remove every trace of it"),
        (
            "backup",
            _pass_on,
            "save all objects, keys and settings (machines' disks are not in it)",
        ),
        (
            "restore",
            _pass_on,
            "put a backup in the place of the stopped cluster's",
        ),
        ("kubeconfig", _kubeconfig, "print the administrator's kubeconfig"),
        ("logs", _pass_on, "show the log of a component"),
    ):
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        default = Path(os.environ.get("VIRTPLANE_STATE", DEFAULT_STATE))
        sub.add_argument("--state", type=Path, default=default, metavar="DIR", help=f"default: {default}")
        if name == "up":
            sub.add_argument("--nodes", type=int, default=1, metavar="N", help="how many nodes (default: 1)")
            sub.add_argument(
                "--external-range",
                action="append",
                default=[],
                metavar="CIDR",
                help="where services' external addresses take effect; may be repeated (default: nowhere)",
            )
        if name == "down":
            sub.add_argument(
                "--grace-period",
                type=float,
                default=30.0,
                metavar="SECONDS",
                help="how long guests may take to shut down before their power is cut (default: 30)",
            )
        if name in ("backup", "restore"):
            sub.add_argument("rest", nargs=1, metavar="FILE", help="the backup")
        if name == "logs":
            sub.add_argument("rest", nargs="*", metavar="COMPONENT", help="apiserver, controllers, node, ...")
    return parser


def main(arguments: list[str]) -> int:
    """Command line; the first argument is the command's name."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except CommandError as error:
        return report(error)
    return code
