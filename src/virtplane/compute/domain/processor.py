"""CPU topology and model, memory."""

from __future__ import annotations

from math import ceil

from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import Element, element, yes_no

_DEFAULT_MEMORY = "8Mi"


def topology(domain: DomainSpec) -> tuple[int, int, int]:
    """Sockets, cores and threads; without any, sockets follow the CPU limit or request."""
    cpu = domain.cpu
    if not (cpu.sockets or cpu.cores or cpu.threads):
        for asked in (domain.resources.limits, domain.resources.requests):
            if "cpu" in asked:
                return max(1, ceil(Quantity.parse(asked["cpu"]).milli_value / 1000)), 1, 1
    return cpu.sockets or 1, cpu.cores or 1, cpu.threads or 1


def vcpu_count(domain: DomainSpec) -> int:
    """The number of virtual CPUs at the guest's start."""
    sockets, cores, threads = topology(domain)
    return sockets * cores * threads


def memory_bytes(domain: DomainSpec) -> int:
    """The guest's memory: ``memory.guest``, else the memory request, else the limit."""
    candidates = (
        domain.memory.guest,
        domain.resources.requests.get("memory"),
        domain.resources.limits.get("memory"),
        _DEFAULT_MEMORY,
    )
    return next(Quantity.parse(amount).value for amount in candidates if amount is not None)


def render_cpu(domain: DomainSpec, context: DomainContext) -> list[Element]:
    """``<vcpu>`` and ``<cpu>``."""
    cpu = domain.cpu
    sockets, cores, threads = topology(domain)
    max_sockets = max(cpu.max_sockets or 0, sockets)
    present, possible = sockets * cores * threads, max_sockets * cores * threads
    vcpu = element("vcpu", {"placement": "static", "current": present if possible != present else None})
    vcpu.text = str(possible)
    elements = [vcpu]
    if possible != present:
        elements.append(_vcpu_list(present, possible, cores * threads))
    node = element("cpu", _model_attributes(cpu.model or "", context))
    model = _custom_model(cpu.model or "")
    if model:
        node.append(element("model", {}, model))
    node.append(element("topology", {"sockets": max_sockets, "cores": cores, "threads": threads}))
    for feature in cpu.features:
        attributes = {"name": feature.name, "policy": feature.policy or "require"}
        node.append(element("feature", attributes))
    if model:
        node.append(element("feature", {"name": "mpx", "policy": "disable"}))
    elements.append(node)
    return elements


def _vcpu_list(present: int, possible: int, per_socket: int) -> Element:
    vcpus = element("vcpus")
    for number in range(possible):
        first = number < per_socket
        attributes = {
            "id": number,
            "enabled": yes_no(number < present),
            "hotpluggable": yes_no(not first),
        }
        vcpus.append(element("vcpu", attributes))
    return vcpus


def _model_attributes(model: str, context: DomainContext) -> dict[str, str]:
    if _custom_model(model):
        return {"mode": "custom", "match": "exact", "check": "none" if context.emulation else "partial"}
    if context.emulation:
        # TCG has no host CPU to copy; "maximum" enables every feature that TCG emulates.
        return {"mode": "maximum"}
    return {"mode": model or "host-model"}


def _custom_model(model: str) -> str:
    return "" if model in ("", "host-model", "host-passthrough") else model


def render_memory(domain: DomainSpec) -> list[Element]:
    """``<memory>``."""
    return [element("memory", {"unit": "b"}, str(memory_bytes(domain)))]
