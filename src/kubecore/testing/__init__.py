"""An in-memory API server behind the client's transport, for tests of code that uses the client. It
implements storage, resourceVersions, finalizers, selectors and watches, but no defaulting, validation or
admission. Tests can inject failures.
"""

from kubecore.testing.memory import MemoryApi

__all__ = ["MemoryApi"]
