"""What metrics tell of a VM: its state's age, what it asks for, its disks, cards and labels (pure).

Names and labels are KubeVirt's. What a user may write at any length or number is cut: each value is a series
in the memory of this process and of Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from kubecore.json import JsonObject, get_object, get_str
from kubecore.objects.times import parse_time
from virtplane.api.cdi_v1beta1.data_volume_template import TemplateSpec
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute import amounts

Figure: TypeAlias = tuple[Mapping[str, str], float]
"""Labels besides those that name the object, and the value."""

MOST_DEVICES = 64
"""Disks or cards of one guest of which metrics tell."""
_MOST_LABELS = 64
_LONGEST_LABEL = 63
"""Kubernetes' limit; labels in templates are not checked until there is an instance."""
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]", re.ASCII)
_NO_MODEL = "<none>"

STATUS_GROUPS: Mapping[str, str] = {
    word: group
    for group, words in {
        "starting": "provisioning starting waitingforvolumebinding",
        "running": "running",
        "migrating": "migrating",
        "non_running": "stopped paused stopping terminating",
        "error": "crashloopbackoff unknown errorunschedulable errimagepull imagepullbackoff errorpvcnotfound"
        " datavolumeerror",
    }.items()
    for word in words.split()
}
"""The group of each printable status, in small letters."""
GROUPS = tuple(dict.fromkeys(STATUS_GROUPS.values()))
_TELLING_CONDITIONS = ("Ready", "Failure", "Paused")


def status_times(vm: VirtualMachine) -> dict[str, float]:
    """By group of states: since when the VM is in this one, in seconds since 1970; 0 for the others.

    -1 where no condition tells it. What is in no group counts as an error, as in KubeVirt.
    """
    status = (vm.observed.printable_status or "").lower()
    telling = [each for each in vm.observed.conditions if each.type in _TELLING_CONDITIONS]
    stamps = (seconds(each.last_transition_time) for each in telling)
    latest = max((stamp for stamp in stamps if stamp is not None), default=-1)
    return {group: latest if group == STATUS_GROUPS.get(status, "error") else 0 for group in GROUPS}


def requests(domain: DomainSpec) -> Iterator[Figure]:
    """What a VM asks for, by resource, unit, and where it is written."""
    asked, cpu = domain.resources.requests, domain.cpu
    yield from _memory(_bytes(asked.get("memory")), "domain")
    yield from _memory(_bytes(domain.memory.guest), "guest")
    pages = domain.memory.hugepages
    if pages is not None and pages.page_size:
        yield from _memory(_bytes(pages.page_size), "hugepages")
    counts = {"cores": cpu.cores, "threads": cpu.threads, "sockets": cpu.sockets}
    for unit, count in counts.items():
        if count:
            yield _asked("cpu", unit, "domain"), count
    milli = _milli(asked.get("cpu"))
    if milli:
        yield _asked("cpu", "cores", "requests"), milli / 1000
    elif cpu == CPU():
        for unit in counts:
            yield _asked("cpu", unit, "default"), 1
    yield _asked("cpu", "cores", "guest_effective"), _vcpus(cpu)
    yield from _memory(_guest_memory(domain), "guest_effective")


def limits(domain: DomainSpec) -> Iterator[Figure]:
    """The limits that a VM sets."""
    limited = domain.resources.limits
    memory, milli = _bytes(limited.get("memory")), _milli(limited.get("cpu"))
    if memory:
        yield {"resource": "memory", "unit": "bytes"}, memory
    if milli:
        yield {"resource": "cpu", "unit": "cores"}, milli / 1000


def _memory(count: int, source: str) -> Iterator[Figure]:
    if count:
        yield _asked("memory", "bytes", source), count


def _asked(resource: str, unit: str, source: str) -> dict[str, str]:
    return {"resource": resource, "unit": unit, "source": source}


def _vcpus(cpu: CPU) -> int:
    """The processors that the guest sees; 0 where something is said of them, but not how many."""
    if cpu == CPU():
        return 1
    counts = [count for count in (cpu.cores, cpu.sockets, cpu.threads) if count]
    product = 1 if counts else 0
    for count in counts:
        product *= count
    return product


def _guest_memory(domain: DomainSpec) -> int:
    asked, limited = domain.resources.requests, domain.resources.limits
    if domain.memory.guest is not None:
        return _bytes(domain.memory.guest)
    return _bytes(asked["memory"] if "memory" in asked else limited.get("memory"))


def disks(vm: VirtualMachine, claim_of: Callable[[str], JsonObject | None]) -> Iterator[Figure]:
    """The sizes of the claims of a VM's disks; `claim_of` gives those of its namespace that are there.

    The size that the VM's own template of a DataVolume asks for comes before that of the claim, which may be
    larger for its file system.
    """
    templates = {
        str((each.metadata or {}).get("name")): each.spec for each in vm.spec.data_volume_templates if each
    }
    for volume in vm.spec.instance.volumes[:MOST_DEVICES]:
        wanted = ""
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
        elif volume.data_volume is not None:
            name = volume.data_volume.name
            wanted = _template_size(templates.get(name))
        else:
            continue
        claim = claim_of(name)
        if claim is None:
            continue
        size = wanted or get_str(claim, "spec", "resources", "requests", "storage")
        mode = get_str(claim, "spec", "volumeMode")
        labels = {"persistentvolumeclaim": name, "volume_mode": mode, "device": volume.name}
        yield labels, _bytes(size or None)


def _template_size(template: TemplateSpec | None) -> str:
    asked = (template.pvc or template.storage) if template is not None else None
    resources = asked.resources if asked is not None else None
    return str(resources.requests.get("storage", "")) if resources is not None else ""


def cards(spec: VirtualMachineInstanceSpec) -> Iterator[Figure]:
    """The network cards of a guest that join a network of its spec."""
    networks = {each.name: each for each in spec.networks if each.pod is not None or each.multus is not None}
    interfaces = {each.name: each for each in spec.domain.devices.interfaces[:MOST_DEVICES]}
    for interface in interfaces.values():
        network = networks.get(interface.name)
        if network is None:
            continue
        kind, binding = _binding(interface)
        yield (
            {
                "vnic_name": interface.name,
                "binding_type": kind,
                "network": network.multus.network_name if network.multus else "pod networking",
                "binding_name": binding,
                "model": interface.model or _NO_MODEL,
            },
            1,
        )


def _binding(interface: Interface) -> tuple[str, str]:
    for name in ("masquerade", "bridge", "sriov"):
        if getattr(interface, name) is not None:
            return "core", name
    return ("plugin", interface.binding.name) if interface.binding is not None else ("", "")


class LabelChoice:
    """Which labels of VMs are told, from the ConfigMap ``kubevirt-vm-labels-config``: all by default."""

    def __init__(self, settings: JsonObject | None) -> None:
        data = get_object(settings, "data")
        self._allowed = _listed(data, "allowlist") if "allowlist" in data else {"*"}
        self._ignored = _listed(data, "ignorelist")

    def __contains__(self, label: str) -> bool:
        return label not in self._ignored and ("*" in self._allowed or label in self._allowed)


def _listed(data: JsonObject, key: str) -> set[str]:
    return {name.strip() for name in get_str(data, key).split(",") if name.strip()}


def told_labels(vm: VirtualMachine, choice: LabelChoice) -> dict[str, str]:
    """The labels of a VM and of its template, under the names that metrics' labels may have."""
    template = get_object(vm.spec.template.metadata or {}, "labels")
    given = {**vm.metadata.labels, **template}
    chosen = [name for name in sorted(given) if name in choice]
    return {
        f"label_{_label_name(name)}": value[:_LONGEST_LABEL]
        for name in chosen[:_MOST_LABELS]
        if isinstance(value := given[name], str)
    }


def _label_name(name: str) -> str:
    written = _NOT_IN_NAMES.sub("_", name[: 253 + 1 + _LONGEST_LABEL])
    return written if written[:1].isalpha() or written[:1] == "_" else f"_{written}"


def _bytes(amount: str | int | float | None) -> int:
    """Bytes of an amount; 0 for what is none."""
    try:
        return amounts.to_bytes(amount)
    except ValueError:
        return 0


def _milli(amount: str | int | float | None) -> int:
    try:
        return amounts.to_milli(amount)
    except ValueError:
        return 0


def seconds(moment: str | None) -> int | None:
    """A moment in whole seconds since 1970; None for what is none: a status is anybody's who may write it."""
    try:
        return int(parse_time(moment).timestamp()) if moment else None
    except ValueError:
        return None
