"""An API server in memory, behind the client's transport, for tests of whatever is written on the client.

It keeps objects, versions, finalizers, selectors, watches and history; it knows no defaults, no
validation and no admission. Failures are injected where a test wants them.
"""

from kubecore.testing.memory import MemoryApi

__all__ = ["MemoryApi"]
