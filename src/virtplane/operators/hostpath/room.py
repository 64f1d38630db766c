"""Which storage pools are full, from what the driver publishes for the scheduler. Pure.

The rule is that of the alert HPPPoolFull, for administrators without Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.storage.hostpath.configuration import FULL_PERCENT


def is_full(capacity: JsonObject) -> bool:
    """Whether a CSIStorageCapacity is that of a full pool; the largest volume is as large as the pool."""
    left, whole = (get_str(capacity, field) for field in ("capacity", "maximumVolumeSize"))
    if not left or not whole:
        return False
    return Quantity.parse(left).value * 100 < Quantity.parse(whole).value * FULL_PERCENT


def full_pools(
    capacities: Iterable[JsonObject], classes: Iterable[JsonObject], shared: Iterable[str]
) -> list[str]:
    """The full pools, those that are not in `shared` with the nodes where they are full."""
    pools = {
        get_str(each, "metadata", "name"): get_str(each, "parameters", "storagePool") for each in classes
    }
    everywhere = set(shared)
    found = set()
    for capacity in capacities:
        pool = pools.get(get_str(capacity, "storageClassName"), "")
        if not pool or not is_full(capacity):
            continue
        nodes = _nodes(get_object(capacity, "nodeTopology", "matchLabels"))
        found.add(pool if pool in everywhere or not nodes else f"{pool} on {nodes}")
    return sorted(found)


def message(full: Iterable[str]) -> str:
    """What the administrator is told; empty where no pool is full."""
    names = ", ".join(full)
    if not names:
        return ""
    return f"Storage pools are full, writes to new blocks of their volumes fail: {names}"


def _nodes(labels: Mapping[str, str]) -> str:
    return " ".join(str(value) for value in labels.values())
