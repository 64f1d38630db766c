"""Usage in Prometheus' text format, under the names that a kubelet gives it; pure.

/metrics/resource has what schedulers and autoscalers need, /metrics/cadvisor more of each container.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kindling.node.stats.usage import NodeUsage

_Sample = tuple[Mapping[str, str], float]


def resource_metrics(usage: NodeUsage) -> str:
    """The page of /metrics/resource."""
    containers = [(pod, each) for pod in usage.pods for each in pod.containers if each.reading is not None]
    pods = [pod for pod in usage.pods if pod.reading is not None]
    named = [
        ({"container": each.name, "namespace": pod.namespace, "pod": pod.name}, each)
        for pod, each in containers
    ]
    told = [({"namespace": pod.namespace, "pod": pod.name}, pod) for pod in pods]
    machine, stamp = usage.machine, round(usage.moment * 1000)
    families: list[tuple[str, str, Iterable[_Sample]]] = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            [(labels, each.reading.usage.cpu_nanoseconds / 1e9) for labels, each in named if each.reading],
        ),
        (
            "container_memory_working_set_bytes",
            "gauge",
            [(labels, each.reading.usage.working_set) for labels, each in named if each.reading],
        ),
        ("container_start_time_seconds", "gauge", [(labels, each.started / 1e9) for labels, each in named]),
        ("node_cpu_usage_seconds_total", "counter", [({}, machine.cpu_nanoseconds / 1e9)]),
        ("node_memory_working_set_bytes", "gauge", [({}, machine.working_set)]),
        (
            "pod_cpu_usage_seconds_total",
            "counter",
            [(labels, pod.reading.usage.cpu_nanoseconds / 1e9) for labels, pod in told if pod.reading],
        ),
        (
            "pod_memory_working_set_bytes",
            "gauge",
            [(labels, pod.reading.usage.working_set) for labels, pod in told if pod.reading],
        ),
    ]
    lines = [line for family in families for line in _family(*family, stamp)]
    lines += _family("resource_scrape_error", "gauge", [({}, 0)], None)
    return "\n".join(lines) + "\n"


def cadvisor_metrics(usage: NodeUsage) -> str:
    """The page of /metrics/cadvisor: processors, memory, and the network of pods."""
    readings = [
        ({"container": each.name, "namespace": pod.namespace, "pod": pod.name}, each.reading.usage)
        for pod in usage.pods
        for each in pod.containers
        if each.reading is not None
    ]
    links = [
        ({"interface": link.name, "namespace": pod.namespace, "pod": pod.name}, link)
        for pod in usage.pods
        for link in pod.interfaces
    ]
    families: list[tuple[str, str, Iterable[_Sample]]] = [
        (
            "container_cpu_usage_seconds_total",
            "counter",
            [(labels, found.cpu_nanoseconds / 1e9) for labels, found in readings],
        ),
        ("container_memory_rss", "gauge", [(labels, found.rss) for labels, found in readings]),
        ("container_memory_usage_bytes", "gauge", [(labels, found.memory) for labels, found in readings]),
        (
            "container_memory_working_set_bytes",
            "gauge",
            [(labels, found.working_set) for labels, found in readings],
        ),
        (
            "container_network_receive_bytes_total",
            "counter",
            [(labels, link.rx_bytes) for labels, link in links],
        ),
        (
            "container_network_transmit_bytes_total",
            "counter",
            [(labels, link.tx_bytes) for labels, link in links],
        ),
        ("machine_memory_bytes", "gauge", [({}, usage.machine.memory_capacity)]),
    ]
    stamp = round(usage.moment * 1000)
    return "\n".join(line for family in families for line in _family(*family, stamp)) + "\n"


def _family(name: str, kind: str, samples: Iterable[_Sample], stamp: int | None) -> Iterator[str]:
    rows = list(samples)
    if rows:
        yield f"# TYPE {name} {kind}"
    for labels, value in rows:
        # A pod may rename its interfaces to almost anything.
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        suffix = "" if stamp is None else f" {stamp}"
        yield f"{name}{{{shown}}} {value}{suffix}" if shown else f"{name} {value}{suffix}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
