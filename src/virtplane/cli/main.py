"""``virtplane``: bring a cluster up, install the product on it, and run its components.

Exit codes: 0 done; 1 the command failed; 2 wrong arguments, or the system lacks something; 3 not permitted.
"""

from __future__ import annotations

import importlib
import sys
from typing import NamedTuple


class _Command(NamedTuple):
    module: str
    summary: str


_COMMANDS = {
    "up": _Command("virtplane.cli.cluster", "Start the embedded cluster with virtplane on it"),
    "down": _Command("virtplane.cli.cluster", "Stop the embedded cluster; its state stays"),
    "status": _Command("virtplane.cli.cluster", "Say what runs"),
    "reset": _Command("virtplane.cli.cluster", "Stop the embedded cluster and remove every trace of it"),
    "backup": _Command("virtplane.cli.cluster", "Save the embedded cluster's objects, keys and settings"),
    "restore": _Command("virtplane.cli.cluster", "Put a backup in the place of the embedded cluster's"),
    "kubeconfig": _Command("virtplane.cli.cluster", "Print the administrator's kubeconfig"),
    "logs": _Command("virtplane.cli.cluster", "Show the log of a component"),
    "demo": _Command("virtplane.cli.demo", "Start a virtual machine and show its console"),
    "install": _Command(
        "virtplane.cli.install", "Install virtplane on the cluster of the current kubeconfig"
    ),
    "image": _Command("virtplane.cli.image", "Build the container image of the product"),
    "test": _Command("virtplane.cli.test", "Run the checks and tests of a checkout"),
    "run": _Command("virtplane.run", "Run components (what containers and units call)"),
    "virtctl": _Command("virtplane.cli.virtctl.main", "Control virtual machines"),
}


def _usage() -> str:
    width = max(map(len, _COMMANDS)) + 2
    lines = ["Usage: virtplane COMMAND [OPTIONS]", "", (__doc__ or "").splitlines()[0], "", "Commands:"]
    lines += [f"  {name:{width}s}{command.summary}" for name, command in _COMMANDS.items()]
    lines += ["", "Use virtplane COMMAND --help for the options of a command."]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Only that command's module is imported."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_usage() + "\n")
        return 0
    name = arguments[0]
    command = _COMMANDS.get(name)
    if command is None:
        sys.stderr.write(f"virtplane: unknown command {name!r}\n\n{_usage()}\n")
        return 2
    module = importlib.import_module(command.module)
    # A module that serves several commands gets the command's name in front of its arguments.
    shared = sum(other.module == command.module for other in _COMMANDS.values()) > 1
    code: int = module.main(arguments if shared else arguments[1:])
    return code


if __name__ == "__main__":
    sys.exit(main())
