"""Volumes in /stats/summary and in the node's metrics, under the names that a kubelet gives them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject, get_list, get_object, get_str

_GAUGES = {
    "kubelet_volume_stats_available_bytes": "availableBytes",
    "kubelet_volume_stats_capacity_bytes": "capacityBytes",
    "kubelet_volume_stats_inodes": "inodes",
    "kubelet_volume_stats_inodes_free": "inodesFree",
    "kubelet_volume_stats_inodes_used": "inodesUsed",
    "kubelet_volume_stats_used_bytes": "usedBytes",
}
_ABNORMAL = "kubelet_volume_stats_health_status_abnormal"


def add_volumes(summary: JsonObject, volumes: Mapping[str, Sequence[JsonObject]]) -> None:
    """Add the statistics of volumes, by pod uid, to the pods of a summary."""
    for pod in get_list(summary, "pods"):
        found = volumes.get(get_str(pod, "podRef", "uid"))
        if found:
            pod["volume"] = [*get_list(pod, "volume"), *found]


def metrics(volumes: Mapping[str, Sequence[JsonObject]]) -> str:
    """Statistics of claims in Prometheus' text format; of a claim of several pods, those of one of them."""
    claims: dict[tuple[str, str], JsonObject] = {}
    for found in volumes.values():
        for stats in found:
            if reference := get_object(stats, "pvcRef"):
                claims.setdefault((get_str(reference, "namespace"), get_str(reference, "name")), stats)
    lines = []
    for metric, field in _GAUGES.items():
        samples = [_sample(metric, claim, stats[field]) for claim, stats in claims.items() if field in stats]
        lines += _family(metric, samples)
    health = [
        _sample(_ABNORMAL, claim, int(bool(stats["volumeHealthStats"].get("abnormal"))))
        for claim, stats in claims.items()
        if "volumeHealthStats" in stats
    ]
    lines += _family(_ABNORMAL, health)
    return "".join(f"{line}\n" for line in lines)


def _family(metric: str, samples: list[str]) -> list[str]:
    return [f"# TYPE {metric} gauge", *samples] if samples else []


def _sample(metric: str, claim: tuple[str, str], value: int) -> str:
    namespace, name = claim
    return f'{metric}{{namespace="{namespace}",persistentvolumeclaim="{name}"}} {value}'
