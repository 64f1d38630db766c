"""What virt-handler loads before it has a guest."""

from __future__ import annotations

import subprocess
import sys


def test_libraries_that_only_guests_disks_need_are_not_loaded() -> None:
    program = "import sys; import virtplane.compute.handler.component; print('pycdlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
