"""The size-detection process: how large the disk image in a claim is (``cdi-image-size-detection``).

CDI's images are raw, so their size is that of the file. What a guest wrote into the first block of its disk
may look like another format, with any size that the guest likes; nobody looks at it.
"""

from __future__ import annotations

import argparse
import logging
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from kubecore.logs import set_up_logging

logger = logging.getLogger(__name__)

BAD_ARGUMENTS, INVALID_FILE, INVALID_PATH, BAD_TERMINATION_FILE, UNKNOWN = range(1, 6)
_TERMINATION = "/dev/termination-log"


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        """End with CDI's code for bad arguments, not with argparse's."""
        self.exit(BAD_ARGUMENTS, f"{message}\n")


def image_size(path: Path) -> int:
    """The bytes of the image. Raises OSError, ValueError for what is no file."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        raise ValueError(f"{path} is no disk image")
    return found.st_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the size of one image as the termination message; CDI's exit code."""
    set_up_logging("size-detection")
    parser = _Arguments(prog="cdi-image-size-detection")
    parser.add_argument("-image-path", required=True, type=Path)
    parser.add_argument("-termination-path", default=Path(_TERMINATION), type=Path)
    asked = parser.parse_args(arguments)
    try:
        size = image_size(asked.image_path)
    except (FileNotFoundError, NotADirectoryError) as error:
        logger.error("there is no image: %s", error)
        return INVALID_PATH
    except ValueError as error:
        logger.error("the image cannot be used: %s", error)
        return INVALID_FILE
    except OSError as error:
        logger.error("the image cannot be read: %s", error)
        return UNKNOWN
    try:
        asked.termination_path.write_text(str(size))
    except OSError as error:
        logger.error("the size cannot be told: %s", error)
        return BAD_TERMINATION_FILE
    return 0


if __name__ == "__main__":
    sys.exit(main())
