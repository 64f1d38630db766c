"""The document of /stats/summary; pure. Fields are those of k8s.io/kubelet/pkg/apis/stats/v1alpha1."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from kindling.node.stats.disk import DiskUsage, FileSystem
from kindling.node.stats.machine import Interface
from kindling.node.stats.usage import ContainerUsage, NodeUsage, PodUsage, Reading, VolumeUsage
from kubecore.json import JsonObject
from kubecore.objects.times import format_time

POD_INTERFACE = "eth0"
"""The interface of a pod whose counters are its own."""


def summary(usage: NodeUsage) -> JsonObject:
    """The whole document; without disks where they were not measured."""
    now = _moment(usage.moment)
    return {"node": _node(usage, now), "pods": [_pod(pod, usage.node_disk, now) for pod in usage.pods]}


def _node(usage: NodeUsage, now: str) -> JsonObject:
    machine = usage.machine
    cpu: JsonObject = {"time": now}
    if usage.nanocores is not None:
        cpu["usageNanoCores"] = usage.nanocores
    node: JsonObject = {
        "nodeName": usage.node,
        "startTime": _moment(machine.boot_seconds),
        "cpu": cpu | {"usageCoreNanoSeconds": machine.cpu_nanoseconds},
        "memory": {
            "time": now,
            "availableBytes": machine.memory_available,
            "usageBytes": machine.memory_used,
            "workingSetBytes": machine.working_set,
            "rssBytes": machine.rss,
            "pageFaults": machine.page_faults,
            "majorPageFaults": machine.major_page_faults,
        },
        "network": _network(usage.interfaces, usage.default_interface, now),
        "rlimit": {"time": now, "maxpid": machine.max_processes, "curproc": machine.processes},
    }
    if usage.node_disk is not None:
        node["fs"] = _disk(usage.node_disk_used, usage.node_disk, now)
    if usage.image_disk is not None:
        images = _disk(usage.images, usage.image_disk, now)
        node["runtime"] = {"imageFs": images, "containerFs": images}
    return node


def _pod(pod: PodUsage, node_disk: FileSystem | None, now: str) -> JsonObject:
    document: JsonObject = {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": pod.started,
        "containers": [_container(container, node_disk, now) for container in pod.containers],
        **_reading(pod.reading, now),
        "network": _network(pod.interfaces, POD_INTERFACE, now),
        "process_stats": {"process_count": pod.processes},
    }
    if volumes := [volume for volume in pod.volumes if volume.is_measured]:
        document["volume"] = [_volume(volume, now) for volume in volumes]
    if node_disk is not None:
        document["ephemeral-storage"] = _disk(pod.local_storage, node_disk, now)
    return document


def _container(container: ContainerUsage, node_disk: FileSystem | None, now: str) -> JsonObject:
    document: JsonObject = {
        "name": container.name,
        "startTime": _moment(container.started / 1e9),
        **_reading(container.reading, now),
    }
    for name, used in (("rootfs", container.rootfs), ("logs", container.logs)):
        if used is not None and node_disk is not None:
            document[name] = _disk(used, node_disk, now)
    return document


def _reading(reading: Reading | None, now: str) -> JsonObject:
    if reading is None:
        return {}
    usage = reading.usage
    cpu: JsonObject = {"time": now}
    if reading.nanocores is not None:
        cpu["usageNanoCores"] = reading.nanocores
    memory: JsonObject = {"time": now}
    if usage.memory_limit is not None:
        memory["availableBytes"] = max(0, usage.memory_limit - usage.working_set)
    memory |= {
        "usageBytes": usage.memory,
        "workingSetBytes": usage.working_set,
        "rssBytes": usage.rss,
        "pageFaults": usage.page_faults,
        "majorPageFaults": usage.major_page_faults,
    }
    return {"cpu": cpu | {"usageCoreNanoSeconds": usage.cpu_nanoseconds}, "memory": memory}


def _network(interfaces: Sequence[Interface], default: str, now: str) -> JsonObject:
    documents = [
        {
            "name": each.name,
            "rxBytes": each.rx_bytes,
            "rxErrors": each.rx_errors,
            "txBytes": each.tx_bytes,
            "txErrors": each.tx_errors,
        }
        for each in interfaces
    ]
    own = next((document for document in documents if document["name"] == default), {"name": ""})
    return {"time": now, **own, "interfaces": documents}


def _volume(volume: VolumeUsage, now: str) -> JsonObject:
    document = _disk(volume.disk, volume.file_system, now)
    if volume.claim is not None:
        document["pvcRef"] = {"name": volume.claim[1], "namespace": volume.claim[0]}
    return document | {"name": volume.name}


def _disk(used: DiskUsage, system: FileSystem | None, now: str) -> JsonObject:
    document: JsonObject = {"time": now}
    if system is not None:
        document |= {"availableBytes": system.available, "capacityBytes": system.capacity}
        document |= {"inodesFree": system.inodes_free, "inodes": system.inodes}
    return document | {"usedBytes": used.used, "inodesUsed": used.inodes}


def _moment(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))
