"""What a transfer frees serves its next pieces."""

from __future__ import annotations

import subprocess
import sys

PIECES = """\
import resource
from virtplane.storage.cdi.buffers import keep_freed_memory
if {keeps}:
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
few = [b"x" * (256 << 10) for _ in range(8)]
del few
begun = faults()
for _ in range(200):
    few = [b"x" * (256 << 10) for _ in range(8)]
    del few
print(faults() - begun)
"""


def faults(*, keeps: bool) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PIECES.format(keeps=keeps)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_pieces_of_a_transfer_are_not_asked_of_the_kernel_again_and_again() -> None:
    assert 4 * faults(keeps=True) < faults(keeps=False)
