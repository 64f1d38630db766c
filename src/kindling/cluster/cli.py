"""The program ``kindling``: its long-running processes, and the commands of people.

The processes are started as `kindling.cluster.processes` writes them. They need nothing that other commands
are made of, such as click, which is 1 MiB in each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from kindling.cluster import serving
from kindling.cluster.errors import SetupError

_WITHOUT_COMMANDS: Final = {
    "apiserver": serving.api_server,
    "controllers": serving.controllers,
    "supervise": serving.supervisor,
}


def main() -> None:
    """Run what the command line says."""
    try:
        match sys.argv[1:]:
            case [name, "--state", state] if name in _WITHOUT_COMMANDS:
                sys.exit(_WITHOUT_COMMANDS[name](Path(state)))
            case ["run-node", name, "--state", state]:
                sys.exit(serving.node(Path(state), name))
    except (SetupError, OSError) as error:
        from kindling.cluster.cli_parts import report

        report(error)
    from kindling.cluster import commands

    commands.main()


if __name__ == "__main__":
    main()
