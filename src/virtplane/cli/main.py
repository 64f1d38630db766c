"""``virtplane``: bring a cluster up, install the product on it, and run its components.

Exit codes: 0 done; 1 the command failed; 2 wrong arguments, or the system lacks something; 3 not permitted;
130 interrupted.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import NamedTuple

import virtplane
from virtplane import first_process
from virtplane.cli.terminal import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_PERMITTED,
    EXIT_UNUSABLE,
    CommandError,
    report,
)

_DEBUG_VARIABLE = "VIRTPLANE_DEBUG"
"""Environment variable that has unexpected errors shown with their traceback."""


class Command(NamedTuple):
    """The module that implements a command, its description, and whether it runs until it is stopped."""

    module: str
    summary: str
    is_long_lived: bool = False


COMMANDS = {
    "up": Command("virtplane.cli.cluster", "Start the embedded cluster with virtplane on it"),
    "down": Command("virtplane.cli.cluster", "Stop the embedded cluster; its state stays"),
    "node": Command("virtplane.cli.nodes", "Add, remove, stop, start or isolate nodes of the cluster"),
    "status": Command("virtplane.cli.cluster", "Say what runs, and whether it is ready"),
    "reset": Command("virtplane.cli.cluster", "Stop the embedded cluster and remove every trace of it"),
    "backup": Command("virtplane.cli.cluster", "Save the embedded cluster's objects, keys and settings"),
    "restore": Command("virtplane.cli.cluster", "Put a backup in the place of the embedded cluster's"),
    "kubeconfig": Command("virtplane.cli.cluster", "Print the administrator's kubeconfig"),
    "logs": Command("virtplane.cli.cluster", "Show the log of a component"),
    "load": Command("virtplane.cli.load", "Make images and disks known to the embedded cluster's nodes"),
    "boot": Command("virtplane.cli.boot", "Start the embedded cluster when the machine boots, or no longer"),
    "demo": Command("virtplane.cli.demo", "Start a virtual machine and show its console"),
    "install": Command("virtplane.cli.install", "Install virtplane on the cluster of the current kubeconfig"),
    "image": Command("virtplane.cli.image", "Build the container image of the product"),
    "completion": Command("virtplane.cli.completion", "Print a shell's completion of these commands"),
    "test": Command("virtplane.cli.test", "Run the checks and tests of a checkout"),
    "hostpath-driver": Command(
        "virtplane.storage.hostpath.main",
        "Serve volumes in folders of a node through CSI",
        is_long_lived=True,
    ),
    "hostpath-csi": Command(
        "virtplane.storage.hostpathcsi",
        "Serve volumes in folders of a node, and what drives that driver",
        is_long_lived=True,
    ),
    "hostpath-mounter": Command(
        "virtplane.storage.hostpath.mounter", "Mount a storage pool's claim on its node"
    ),
    "run": Command("virtplane.run", "Run components (what containers and units call)", is_long_lived=True),
    "csi": Command(
        "virtplane.storage.csi.command",
        "Drive a CSI driver (what containers beside a driver call)",
        is_long_lived=True,
    ),
    "virtctl": Command("virtplane.cli.virtctl.main", "Control virtual machines"),
}


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = ["Usage: virtplane COMMAND [OPTIONS]", "", (__doc__ or "").splitlines()[0], "", "Commands:"]
    lines += [f"  {name:{width}s}{command.summary}" for name, command in COMMANDS.items()]
    lines += [
        "",
        "Use virtplane COMMAND --help for the options of a command, virtplane --version for the version.",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Only that command's module is imported."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_usage() + "\n")
        return EXIT_DONE
    if arguments[0] in ("--version", "version"):
        sys.stdout.write(f"virtplane {virtplane.__version__} (KubeVirt {virtplane.KUBEVIRT_VERSION})\n")
        return EXIT_DONE
    if arguments[0] not in COMMANDS:
        sys.stderr.write(f"virtplane: unknown command {arguments[0]!r}\n\n{_usage()}\n")
        return EXIT_UNUSABLE
    first_process.end_when_told()
    try:
        code = _run(arguments[0], arguments[1:])
        sys.stdout.flush()
    except CommandError as error:
        return report(error)
    except ModuleNotFoundError as error:
        if not _asks_for_help(arguments):
            raise
        # ./virtplane installs nothing for help, so this is the system's Python, which lacks libraries.
        sys.stdout.write(_help_without_libraries(arguments[0], error.name or "a library"))
        return EXIT_DONE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has closed it; without this, Python would print another error at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except PermissionError as error:
        do = "Run this as root, or through sudo."
        return report(CommandError("Something is not permitted.", str(error), do, code=EXIT_NOT_PERMITTED))
    except Exception as error:
        if os.environ.get(_DEBUG_VARIABLE):
            traceback.print_exc()
        return report(_unexpected(error))
    return code


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    if command.is_long_lived:
        # Imported here: short commands do not need it.
        from kubecore.long_lived import stay_small

        stay_small()
    module = importlib.import_module(command.module)
    # A module with several commands gets the command's name as its first argument.
    shared = sum(other.module == command.module for other in COMMANDS.values()) > 1
    code: int = module.main([name, *arguments] if shared else arguments)
    return code


def _asks_for_help(arguments: list[str]) -> bool:
    return "-h" in arguments or "--help" in arguments


def _help_without_libraries(name: str, library: str) -> str:
    return (
        f"virtplane {name}: {COMMANDS[name].summary}.\n"
        f"Its options are shown once virtplane is installed here ({library} is missing), which any command"
        " but help does.\n"
    )


def _unexpected(error: Exception) -> CommandError:
    do = f"With {_DEBUG_VARIABLE}=1 in the environment, the traceback is shown."
    return CommandError("Something failed that should not.", f"{type(error).__name__}: {error}", do)


if __name__ == "__main__":
    sys.exit(main())
