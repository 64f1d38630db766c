"""``up``, ``down``, ``status``, ``reset``, ``backup``, ``restore``, ``kubeconfig`` and ``logs``.

They manage the embedded cluster of kindling, which is a separate program: virtplane starts it by its command
line and uses it through its kubeconfig, like any other Kubernetes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from virtplane.cli.state import add_state_option
from virtplane.cli.terminal import EXIT_FAILED, EXIT_NOT_PERMITTED, EXIT_UNUSABLE, CommandError, require_root
from virtplane.programs import own_program

if TYPE_CHECKING:
    from kubecore.client import Client

NAMESPACE = "kubevirt"
HOST_IMAGE = "kindling.local/host:latest"
"""kindling's name for the image that is this machine itself; everywhere else an ordinary reference."""
PROGRAM = "./virtplane"
"""What users of a checkout type; kindling's messages name it as well."""


def kindling(*arguments: str, state: Path) -> int:
    """Run kindling's command line and return its exit code: a command, of one word or more, and its options.

    Raises CommandError if it is not installed.
    """
    try:
        program = own_program("kindling")
    except FileNotFoundError as error:
        do = "Use a checkout, or put virtplane on a cluster that you have: virtplane install"
        raise CommandError(
            "There is no embedded cluster here.", str(error), do, code=EXIT_UNUSABLE
        ) from error
    command, *rest = arguments
    environment = {**os.environ, "KINDLING_PROGRAM": PROGRAM}
    return subprocess.run(
        [program, *command.split(), "--state", str(state), *rest], check=False, env=environment
    ).returncode


def host_image_accounts(namespace: str = NAMESPACE) -> list[str]:
    """kindling's options that allow only the product's service accounts to use the host image."""
    from virtplane.api.cdi_names import CRON_ACCOUNT
    from virtplane.components import COMPONENTS
    from virtplane.operators.hostpath.product import DRIVER_ACCOUNTS

    own = {component.service_account for component in COMPONENTS.values()}
    accounts = sorted({*own, *DRIVER_ACCOUNTS, CRON_ACCOUNT})
    return [f"--host-image-account={namespace}/{account}" for account in accounts]


def start(
    state: Path,
    *,
    nodes: int | None = None,
    port: int | None = None,
    external_ranges: Sequence[str] = (),
    storage: str | None = None,
    node_links: Sequence[str] = (),
    node_options: Sequence[str] = (),
    ip_family: str | None = None,
) -> None:
    """Start the cluster and install virtplane on it; running parts are left alone. `nodes` and `port` default
    to the present ones, and for a new cluster to one node and a free port. External addresses of services
    take effect in `external_ranges`; `storage` is the size of the storage pool, `ip_family` what the cluster
    has of IPv4 and IPv6; `node_links` are links that every node gets for secondary networks, and
    `node_options` (``NAME=VALUE``) are named as a kubelet's flags.
    Raises CommandError.
    """
    require_root("up")
    given = {"nodes": nodes, "port": port, "storage": storage, "ip-family": ip_family}
    wishes = [f"--{name}={value}" for name, value in given.items() if value is not None]
    wishes += [f"--external-range={text}" for text in external_ranges]
    wishes += [f"--node-link={name}" for name in node_links]
    wishes += [f"--node-option={text}" for text in node_options]
    code = kindling("up", *host_image_accounts(), *wishes, state=state)
    if code:
        logs = state / "logs"
        why = f"The reason stands above; logs are in {logs}." if logs.is_dir() else "The reason stands above."
        raise CommandError("The cluster did not start.", why, code=code)
    asyncio.run(_install(state))


_READY_SECONDS = 120.0
_POLL_SECONDS = 0.2


async def _install(state: Path) -> None:
    from kubecore.client import Client
    from kubecore.client.kubeconfig import load_kubeconfig
    from virtplane.api import guestfs
    from virtplane.cli import storage, uploads
    from virtplane.cli.install import install
    from virtplane.compute.handler.node import kvm
    from virtplane.operators.kubevirt.manifests import InstallOptions

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
                guestfs_image=guestfs.LOADED_IMAGE,
            ),
        )
        await storage.install(client, state, storage.deadline_in(_READY_SECONDS))
        await uploads.offer(client, NAMESPACE)
        await wait_ready(client)


async def wait_ready(client: Client) -> None:
    """Wait until `status` says ready: the virt-handler of a node that was added starts later.

    Raises CommandError.
    """
    from kubecore.client import ConnectionFailed
    from virtplane.cli import status

    async def look() -> str:
        try:
            return await status.missing_parts(client, NAMESPACE)
        except ConnectionFailed as error:
            return f"the API does not answer: {error}"

    deadline = time.monotonic() + _READY_SECONDS
    while missing := await look():
        if time.monotonic() > deadline:
            do = f"Look at: kubectl -n {NAMESPACE} get pods,events"
            raise CommandError("virtplane did not become ready.", missing, do)
        await asyncio.sleep(_POLL_SECONDS)


def _up(options: argparse.Namespace) -> int:
    start(
        options.state,
        nodes=options.nodes,
        port=options.port,
        external_ranges=options.external_range,
        storage=options.storage,
        node_links=options.node_link,
        node_options=options.node_option,
        ip_family=options.ip_family,
    )
    kubeconfig = options.state / "kubeconfig"
    sys.stdout.write(f"Ready. Use it with:\n  export KUBECONFIG={kubeconfig}\n")
    return 0


def _down(options: argparse.Namespace) -> int:
    require_root("down")
    return kindling("down", f"--grace-period={options.grace_period}", state=options.state)


def _reset(options: argparse.Namespace) -> int:
    require_root("reset")
    from virtplane.cli import boot

    code = kindling("reset", state=options.state)
    if code == 0:
        boot.disable(options.state.resolve())
    return code


def _backup_or_restore(options: argparse.Namespace) -> int:
    require_root(options.command)
    return kindling(options.command, str(options.file), state=options.state)


def _status(options: argparse.Namespace) -> int:
    if code := kindling("status", state=options.state):
        return code
    from virtplane.cli import status

    missing = asyncio.run(status.missing(options.state / "kubeconfig", NAMESPACE))
    sys.stdout.write(f"virtplane   {f'not ready: {missing}' if missing else 'ready'}\n")
    return EXIT_FAILED if missing else 0


def _kubeconfig(options: argparse.Namespace) -> int:
    if options.merge:
        require_root("kubeconfig --merge")
        return kindling("kubeconfig", "--merge", state=options.state)
    sys.stdout.write(_readable_kubeconfig(options.state).read_text())
    return 0


def _readable_kubeconfig(state: Path) -> Path:
    """The administrator's kubeconfig. Raises CommandError if it does not exist or this user may not read
    it.
    """
    path = state / "kubeconfig"
    try:
        with path.open():
            return path
    except PermissionError as error:
        raise CommandError(
            f"{path} cannot be read.",
            str(error),
            "Run this as root, or through sudo.",
            code=EXIT_NOT_PERMITTED,
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CommandError(
            "There is no cluster.", f"{path} does not exist.", f"Start one: {PROGRAM} up --state {state}"
        ) from error


def _logs(options: argparse.Namespace) -> int:
    from virtplane.cli import logs

    if options.component in logs.COMPONENTS:
        logs.show(
            _readable_kubeconfig(options.state),
            NAMESPACE,
            options.component,
            lines=options.lines,
            follow=options.follow,
        )
        return 0
    arguments = [f"--lines={options.lines}", *(["--follow"] if options.follow else [])]
    if options.component:
        return kindling("logs", *arguments, options.component, state=options.state)
    code = kindling("logs", *arguments, state=options.state)
    if code == 0:
        sys.stdout.write("".join(f"{name}\n" for name in logs.COMPONENTS))
    return code


def _whole(least: int, most: int) -> Callable[[str], int]:
    """The argparse type of an integer from `least` to `most`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return number


def _seconds(text: str) -> float:
    """The argparse type of a duration in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _no_options(parser: argparse.ArgumentParser) -> None:
    del parser


def _up_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nodes",
        type=_whole(1, 200),
        metavar="N",
        help="how many nodes; more are added (default: as before; 1 at first)",
    )
    parser.add_argument(
        "--port",
        type=_whole(1, 65535),
        metavar="N",
        help="port of the API (default: as before; a free one at first)",
    )
    parser.add_argument(
        "--external-range",
        action="append",
        default=[],
        metavar="CIDR",
        help="where services' external addresses take effect; may be repeated (default: nowhere)",
    )
    parser.add_argument(
        "--node-link",
        action="append",
        default=[],
        metavar="NAME",
        help="a link that every node gets, all on one switch, for secondary networks; may be repeated "
        "(default: as before; none at first)",
    )
    parser.add_argument(
        "--node-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of all nodes, named as a kubelet's flag, such as cpu-manager-policy=static; may be "
        "repeated (default: as before; none at first)",
    )
    parser.add_argument(
        "--storage",
        metavar="SIZE",
        help="size of the storage pool, such as 200Gi; it takes space as it is written, and may grow later; "
        "0: none (default: as before; most of the free space at first)",
    )
    parser.add_argument(
        "--ip-family",
        choices=("dual", "ipv4"),
        help="addresses of nodes, pods and services: IPv4 alone, or IPv6 as well where the machine has it "
        "(default: as before; dual at first)",
    )


def add_grace_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--grace-period``."""
    parser.add_argument(
        "--grace-period",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="how long guests may take to shut down before their power is cut (default: 30)",
    )


def _file_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the backup")


def _kubeconfig_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--merge",
        action="store_true",
        help="add the cluster to your own kubeconfig (~/.kube/config) and make it the current context",
    )


def _logs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows")
    parser.add_argument(
        "-n",
        "--lines",
        type=_whole(0, 10**9),
        default=100,
        metavar="N",
        help="how many of the last lines (default: 100)",
    )
    parser.add_argument(
        "component",
        nargs="?",
        metavar="COMPONENT",
        help="virt-api, virt-controller, virt-handler, virt-operator, apiserver, ... (default: list them)",
    )


class _Command(NamedTuple):
    run: Callable[[argparse.Namespace], int]
    summary: str
    add_options: Callable[[argparse.ArgumentParser], None] = _no_options


_COMMANDS = {
    "up": _Command(_up, "Start the cluster with virtplane on it, or what is missing of it.", _up_options),
    "down": _Command(_down, "Shut the guests down and stop the cluster; its state stays.", add_grace_option),
    "status": _Command(_status, "Say what runs and whether it is ready; exit code 1 when it is not."),
    "reset": _Command(_reset, "Stop the cluster and remove every trace of it."),
    "backup": _Command(
        _backup_or_restore,
        "Save all objects, keys and settings (machines' disks are not in it).",
        _file_option,
    ),
    "restore": _Command(
        _backup_or_restore, "Put a backup in the place of the stopped cluster's.", _file_option
    ),
    "kubeconfig": _Command(
        _kubeconfig, "Print the administrator's kubeconfig, or add it to your own.", _kubeconfig_options
    ),
    "logs": _Command(_logs, "Show the log of a component, or the components' names.", _logs_options),
}


def parser(command: str) -> argparse.ArgumentParser:
    """The parser of one of these commands."""
    entry = _COMMANDS[command]
    made = argparse.ArgumentParser(prog=f"virtplane {command}", description=entry.summary)
    add_state_option(made)
    entry.add_options(made)
    made.set_defaults(command=command)
    return made


def main(arguments: list[str]) -> int:
    """Command line; the first argument is the command's name. Raises CommandError."""
    command, *rest = arguments
    return _COMMANDS[command].run(parser(command).parse_args(rest))
