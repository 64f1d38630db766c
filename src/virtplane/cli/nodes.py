"""``virtplane node``: adding, removing, stopping, starting and isolating single nodes of the cluster.

kindling does it; what is waited for here is virtplane's part of a new node.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from virtplane.cli import cluster
from virtplane.cli.state import add_state_option
from virtplane.cli.terminal import require_root

ACTIONS = {
    "list": "List the nodes: name, address, state, and whether they are ready.",
    "add": "Add a node, called NAME or the next free name.",
    "stop": "Shut down the guests on a node and stop it, as if it was powered off, until it is started.",
    "start": "Start a stopped node; connect an isolated one again.",
    "isolate": "Cut the link of a node, as a broken cable does; its guests run on.",
    "remove": "Stop a node and remove it with its disks. First: kubectl drain NAME.",
}
"""What can be done with a node."""


def parser() -> argparse.ArgumentParser:
    """The options of ``node``."""
    made = argparse.ArgumentParser(
        prog="virtplane node", description="Add, remove, stop, start or isolate nodes of the running cluster."
    )
    add_state_option(made)
    choices = made.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions = {name: choices.add_parser(name, help=text, description=text) for name, text in ACTIONS.items()}
    for name, action in actions.items():
        add_state_option(action, again=True)
        if name != "list":
            action.add_argument("name", nargs="?" if name == "add" else None, metavar="NAME", help="the node")
    for name in ("stop", "remove"):
        cluster.add_grace_option(actions[name])
    actions["remove"].add_argument(
        "--force", action="store_true", help="also if guests or other pods run on it, which are lost"
    )
    return made


def main(arguments: list[str]) -> int:
    """Command line. Raises CommandError."""
    options = parser().parse_args(arguments)
    action, words = options.action, []
    if action != "list":
        require_root(f"node {action}")
        words = ["--", options.name] if options.name else []
    if action == "remove" and options.force:
        words = ["--force", *words]
    if action in ("stop", "remove"):
        words = [f"--grace-period={options.grace_period}", *words]
    code = cluster.kindling(f"node {action}", *words, state=options.state)
    if code == 0 and action in ("add", "start"):
        asyncio.run(_wait_ready(options.state))
    return code


async def _wait_ready(state: Path) -> None:
    from kubecore.client import Client
    from kubecore.client.kubeconfig import load_kubeconfig

    async with Client(load_kubeconfig(str(state / "kubeconfig"))) as client:
        await cluster.wait_ready(client)
