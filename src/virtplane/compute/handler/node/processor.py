"""The CPU models and features that guests can have on this node, read from libvirt's capabilities. Pure.

Two properties of the node get no label, since guests cannot use them yet: encrypted memory and real-time
scheduling. It is better not to schedule such a guest than to run it without the property.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from virtplane.api import labels as names

_OLD_MODELS = (
    "486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "n270", "core2duo", "Conroe", "athlon",
    "phenom", "qemu64", "qemu32", "kvm64", "kvm32", "Opteron_G1", "Opteron_G2",
)  # fmt: skip
OBSOLETE_MODELS: Mapping[str, bool] = {name: True for model in _OLD_MODELS for name in (model, f"{model}-v1")}
"""Models that no guest should have, unless ``obsoleteCPUModels`` of the configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class Processor:
    """The CPU models and features that this node can give to guests."""

    models: tuple[str, ...] = ()
    """Every model that libvirt knows; a guest that has one may come from another node."""
    usable_models: tuple[str, ...] = ()
    """Those that a guest can be started with here."""
    host_model: str = ""
    """The model nearest to the node's own; empty where guests cannot have the node's own."""
    host_model_features: tuple[str, ...] = ()
    """What the node's processor has beyond `host_model`."""
    vendor: str = ""
    features: tuple[str, ...] = ()
    """Everything that the node's own model has."""
    tsc_hertz: int | None = None
    """Frequency of the time stamp counter; None where it is not known, as under emulation."""
    tsc_scalable: bool = False


def host_cpu(domain_capabilities: str) -> str:
    """The node's own CPU model as the ``<cpu>`` of a domain; empty if guests cannot have it."""
    mode = etree.fromstring(domain_capabilities).find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None:
        return ""
    cpu = etree.Element("cpu")
    cpu.extend(list(mode))
    return etree.tostring(cpu, encoding="unicode")


def read(domain_capabilities: str, expanded: str = "", host: str = "") -> Processor:
    """The processor by libvirt's domain capabilities, the expanded ``host_cpu``, and host capabilities.

    The latter two are empty where libvirt could not tell. Raises lxml.etree.XMLSyntaxError.
    """
    root = etree.fromstring(domain_capabilities)
    known = root.findall("cpu/mode[@name='custom']/model")
    own = host_cpu(domain_capabilities)
    cpu = etree.fromstring(own) if own else etree.Element("cpu")
    counter = etree.fromstring(host).find("host/cpu/counter[@name='tsc']") if host else None
    frequency = counter.get("frequency", "") if counter is not None else ""
    return Processor(
        models=tuple(sorted(filter(None, (model.text for model in known)))),
        usable_models=tuple(sorted(model.text or "" for model in known if model.get("usable") == "yes")),
        host_model=cpu.findtext("model", ""),
        host_model_features=_required(cpu),
        vendor=cpu.findtext("vendor", ""),
        features=_required(etree.fromstring(expanded)) if expanded else (),
        tsc_hertz=int(frequency) if frequency.isdigit() else None,
        tsc_scalable=counter is not None and counter.get("scaling") == "yes",
    )


def _required(cpu: etree._Element) -> tuple[str, ...]:
    found = (item.get("name", "") for item in cpu.findall("feature") if item.get("policy") == "require")
    return tuple(sorted(found))


def is_obsolete(model: str, obsolete: Mapping[str, bool] | None) -> bool:
    """Whether guests should not have `model`; `obsolete` is the configuration's list, None without one."""
    return bool((OBSOLETE_MODELS if obsolete is None else obsolete).get(model))


def labels(processor: Processor, obsolete: Mapping[str, bool] | None) -> dict[str, str]:
    """The labels by which pods select nodes with a CPU model or feature."""
    found: dict[str, str] = {}
    for prefix, values in (
        (names.CPU_MODEL_MIGRATION_PREFIX, _wanted(processor.models, obsolete)),
        (names.CPU_MODEL_PREFIX, _wanted(processor.usable_models, obsolete)),
        (names.CPU_FEATURE_PREFIX, processor.features),
        (names.HOST_MODEL_FEATURES_PREFIX, processor.host_model_features),
    ):
        found |= {prefix + value: "true" for value in values}
    if processor.host_model:
        found[names.HOST_MODEL_CPU_PREFIX + processor.host_model] = "true"
        if is_obsolete(processor.host_model, obsolete):
            found[names.OBSOLETE_HOST_MODEL] = "true"
    if processor.vendor:
        found[names.CPU_VENDOR_PREFIX + processor.vendor] = "true"
    if processor.tsc_hertz is not None:
        found[f"{names.CPU_TIMER_PREFIX}tsc-frequency"] = str(processor.tsc_hertz)
        found[f"{names.CPU_TIMER_PREFIX}tsc-scalable"] = "true" if processor.tsc_scalable else "false"
    return found


def _wanted(models: tuple[str, ...], obsolete: Mapping[str, bool] | None) -> list[str]:
    return [model for model in models if not is_obsolete(model, obsolete)]
