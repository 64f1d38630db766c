"""The state directory of the embedded cluster: the option ``--state`` of all its commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

DEFAULT_STATE = Path("/var/lib/virtplane")
IMAGES = "images"
"""Where images are kept, below the state directory."""
_VARIABLE = "VIRTPLANE_STATE"


def add_state_option(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Add the option ``--state``; its default is the variable ``VIRTPLANE_STATE``, or `DEFAULT_STATE`.

    `again`: to an action of a command that has it, too; what stands before the action then holds as well.
    """
    default = Path(os.environ.get(_VARIABLE) or DEFAULT_STATE)
    parser.add_argument(
        "--state",
        type=Path,
        default=argparse.SUPPRESS if again else default,
        metavar="DIR",
        help=f"the cluster's directory (default: {default})",
    )
