"""What virt-handler tells of itself and of its node: its version, and machine types that will go away."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from kubecore.runtime.metrics import add_sample
from virtplane import KUBEVIRT_VERSION

NAMES = ("kubevirt_info", "kubevirt_node_deprecated_machine_types")


class NodeMetrics:
    """Always tells the same."""

    def __init__(self, node: str, deprecated: Sequence[str]) -> None:
        """`deprecated` are the machine types that QEMU says it will not have much longer."""
        self._node = node
        self._deprecated = deprecated

    def describe(self) -> list[Metric]:
        """Nothing: they are told when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        info = Metric(NAMES[0], "The version of virt-handler", "gauge")
        # The label is KubeVirt's; here it is what runs it, as in the answer to ``version``.
        versions = {"goversion": f"python{platform.python_version()}", "kubeversion": KUBEVIRT_VERSION}
        add_sample(info, versions, 1)
        machines = Metric(NAMES[1], "Machine types that QEMU will not have much longer", "gauge")
        for name in self._deprecated:
            add_sample(machines, {"machine_type": name, "node": self._node}, 1)
        yield from (info, machines)
