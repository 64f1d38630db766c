"""The document with the metrics, and the disk that holds it. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape

from virtplane.compute.handler.libvirtd.figures import GuestFigures

DISK_BYTES = 262144
NOT_AVAILABLE = "<metrics><!-- host metrics not available --><!-- VM metrics not available --></metrics>\n\n"
"""What the channel answers where nothing can be measured."""

_HEADER = struct.Struct(">4siii")
_SIGNATURE = b"mvbd"
_NANOSECONDS = 10**9


@dataclass(frozen=True, slots=True)
class Metric:
    """One value; a whole number, a share, or a text."""

    name: str
    value: int | float | str
    unit: str = ""
    context: Literal["host", "vm"] = "host"

    @property
    def type(self) -> str:
        """The type of the value in the document."""
        if isinstance(self.value, str):
            return "string"
        return "real64" if isinstance(self.value, float) else "uint64"


def metrics(node: str, guest: GuestFigures, host: Sequence[Metric]) -> list[Metric]:
    """Everything that a guest is told, in KubeVirt's order."""
    return [
        Metric("HostName", node),
        Metric("HostSystemInfo", "linux"),
        Metric("VirtualizationVendor", "kubevirt.io"),
        Metric("VirtProductInfo", guest.hypervisor),
        Metric("TotalCPUTime", guest.cpu_nanoseconds / _NANOSECONDS, "s", "vm"),
        Metric("ResourceProcessorLimit", guest.cpus, "", "vm"),
        Metric("PhysicalMemoryAllocatedToVirtualSystem", guest.memory_kib, "KiB", "vm"),
        Metric("ResourceMemoryLimit", guest.memory_kib, "KiB", "vm"),
        *host,
    ]


def document(found: Sequence[Metric]) -> str:
    """The metrics as XML, without a line end behind."""
    lines = ["<metrics>"]
    for metric in found:
        unit = f' unit="{metric.unit}"' if metric.unit else ""
        value = f"{metric.value:f}" if isinstance(metric.value, float) else str(metric.value)
        text = value.replace("]]>", "]]]]><![CDATA[>")
        lines += [
            f'  <metric type="{metric.type}" context="{metric.context}"{unit}>',
            f"    <name>{escape(metric.name)}</name>",
            f"    <value><![CDATA[{text}]]></value>",
            "  </metric>",
        ]
    return "\n".join([*lines, "</metrics>"])


def header(body: bytes, *, is_busy: bool) -> bytes:
    """The start of the disk. While it `is_busy` the guest reads again: the body is being written."""
    checksum = sum(body) & 0x7FFFFFFF
    return _HEADER.pack(_SIGNATURE, 1 if is_busy else 0, checksum, len(body))


def disk_body(text: str) -> bytes:
    """The document as the disk holds it behind the header. Raises ValueError for one that is too long."""
    body = f"{text}\n".encode()
    if len(body) > DISK_BYTES - _HEADER.size:
        raise ValueError(f"{len(body)} bytes of metrics are too many for their disk")
    return body
