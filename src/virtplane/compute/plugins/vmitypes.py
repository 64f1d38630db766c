"""The types of an instance in expressions, made of the API's structs.

Expressions of node hooks have the names of the API (``vmi.spec.domain.cpu.cores``), those about domains
the names of Go's fields (``vmi.Spec.Domain.CPU.Cores``), because KubeVirt compiles them so.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import Meta

from kubecore.cel.records import Record, Records
from kubecore.cel.values import Uint
from kubecore.json import JsonObject
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.markers import UNSIGNED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta

VMI = "v1.VirtualMachineInstance"
_LARGEST_UINT32 = 4294967295

_SPELLINGS = """
ACPI ACPIIndex APIC APIVersion BIOS CDRom CPU CPUSet DedicatedCPUPlacement DHCert DHCPOptions DNSConfig
DNSPolicy EFI EVMCS FSFreezeStatus GPUs HPET HTTPGet I6300ESB ID IO IOThreads IOThreadsPolicy IPI KVM LUN
MAC MigrationUID NetworkInterfaceMultiQueue NTPServers NUMA PIT QOSClass ReadOnly RTC SEV SMM SNP SRIOV
SSHPublicKey SyNIC SyNICTimer TCPSocket TDX TFTPServerName TLBFlush TPM TSCFrequency UID UTC UUID VAPIC
VendorID VersionID VMIPv6NetworkCIDR VMNetworkCIDR VPIndex
"""
"""Names of Go that are more than the API's with a capital in front."""

_OTHERS = {
    ("VirtualMachineInstance", "metadata"): "ObjectMeta",
    ("VirtualMachineInstanceStatus", "guestAgentVersion"): "GAVersion",
    ("VirtualMachineInstanceNetworkInterface", "ipAddress"): "IP",
    ("VirtualMachineInstanceNetworkInterface", "ipAddresses"): "IPs",
    ("VirtualMachineInstanceMigrationState", "migrationConfiguration"): "VMIMConfigurationOptions",
    ("FeatureSpinlocks", "spinlocks"): "Retries",
    ("CloudInitConfigDriveSource", "secretRef"): "UserDataSecretRef",
    ("CloudInitNoCloudSource", "secretRef"): "UserDataSecretRef",
    **{(f"{timer}Timer", "present"): "Enabled" for timer in ("RTC", "KVM", "Hyperv", "HPET", "PIT")},
}

Struct: TypeAlias = type[ApiStruct]


@cache
def _spellings() -> Mapping[str, str]:
    return {name.lower(): name for name in _SPELLINGS.split()}


class Naming(Enum):
    """How the fields of an instance are called."""

    API = "api"
    GO = "go"

    def of(self, struct: Struct, wire: str) -> str:
        """The name of a field in expressions."""
        if self is Naming.API:
            return wire
        known = _OTHERS.get((struct.__name__, wire)) or _spellings().get(wire.lower())
        return known or wire[0].upper() + wire[1:]


@dataclass(frozen=True, slots=True)
class _Kind:
    """The type of a field: its name, or that of the values in a list or map, and how values are made."""

    text: str
    struct: Struct | None = None
    container: str = ""

    @property
    def cel_type(self) -> str:
        inner = _name(self.struct) if self.struct is not None else self.text
        return {"list": f"list({inner})", "map": f"map(string, {inner})"}.get(self.container, inner)


def _name(struct: Struct) -> str:
    return f"v1.{struct.__name__}"


@cache
def _fields(struct: Struct) -> Mapping[str, _Kind]:
    """The fields of a struct by their names in the API."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return {each.encode_name: _kind(hints[each.name]) for each in msgspec.structs.fields(struct)}


def _kind(hint: Any) -> _Kind:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if arguments[0] is int and any(map(_is_unsigned, arguments[1:])):
            return _Kind("uint")
        return _kind(arguments[0])
    if origin in (types.UnionType, typing.Union):
        rest = [each for each in arguments if each is not type(None)]
        # Amounts and ports are numbers or texts.
        return _kind(rest[0]) if len(rest) == 1 else _Kind("dyn")
    if origin is tuple:
        return replace(_kind(arguments[0]), container="list")
    if origin is Mapping:
        return replace(_kind(arguments[1]), container="map")
    if isinstance(hint, type) and issubclass(hint, ApiStruct):
        return _Kind("", hint)
    return _Kind({str: "string", int: "int", bool: "bool", float: "double"}.get(hint, "dyn"))


def _is_unsigned(mark: Any) -> bool:
    schema = (mark.extra_json_schema if isinstance(mark, Meta) else None) or {}
    return UNSIGNED in schema or schema.get("maximum") == _LARGEST_UINT32


@cache
def vmi_types(naming: Naming) -> Mapping[str, Mapping[str, str]]:
    """The fields of an instance's types, each with the name of its type."""
    found: dict[str, Mapping[str, str]] = {}
    waiting: list[Struct] = [VirtualMachineInstance]
    while waiting:
        struct = waiting.pop()
        if _name(struct) in found:
            continue
        fields = _fields(struct)
        names = {naming.of(struct, wire): kind.cel_type for wire, kind in fields.items()}
        if struct is VirtualMachineInstance and naming is Naming.GO:
            # Go has the fields of what is embedded, too.
            names |= {
                naming.of(ObjectMeta, wire): kind.cel_type for wire, kind in _fields(ObjectMeta).items()
            }
        found[_name(struct)] = names
        waiting += [kind.struct for kind in fields.values() if kind.struct is not None]
    return found


def vmi_record(document: JsonObject, naming: Naming, records: Records) -> Record:
    """An instance, in JSON, as a record."""
    made = _record(document, VirtualMachineInstance, naming, records)
    if naming is Naming.GO:
        metadata = _record(document.get("metadata", {}), ObjectMeta, naming, records)
        return Record(made.kind, {**metadata.fields, **made.fields}, records)
    return made


def _record(document: JsonObject, struct: Struct, naming: Naming, records: Records) -> Record:
    fields = {
        naming.of(struct, wire): _value(document[wire], kind, naming, records)
        for wire, kind in _fields(struct).items()
        if document.get(wire) is not None
    }
    return Record(_name(struct), fields, records)


def _value(value: Any, kind: _Kind, naming: Naming, records: Records) -> Any:
    single = replace(kind, container="")
    if kind.container == "list":
        return [_value(each, single, naming, records) for each in value]
    if kind.container == "map":
        return {key: _value(each, single, naming, records) for key, each in value.items()}
    if kind.struct is not None:
        return _record(value, kind.struct, naming, records)
    if kind.text == "double":
        return float(value)
    return Uint(value) if kind.text == "uint" else value
