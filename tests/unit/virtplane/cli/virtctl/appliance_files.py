"""Appliances for tests: descriptors as programs write them, and archives that can be wrong in any way."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

_OVF = "http://schemas.dmtf.org/ovf/envelope/1"
_RASD = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"

DISK = '<Disk ovf:diskId="d1" ovf:fileRef="f1" ovf:capacity="4" ovf:capacityAllocationUnits="byte * 2^20"/>'
FILE = '<File ovf:id="f1" ovf:href="disk1.vmdk"/>'
DRIVE = {"InstanceID": "9", "ResourceType": "17", "HostResource": "ovf:/disk/d1"}
CPU = {"ResourceType": "3", "VirtualQuantity": "2"}
MEMORY = {"ResourceType": "4", "VirtualQuantity": "3", "AllocationUnits": "byte * 2^30"}


def item(fields: Mapping[str, str]) -> str:
    """One piece of virtual hardware."""
    members = "".join(f"<rasd:{key}>{value}</rasd:{key}>" for key, value in fields.items())
    return f"<Item>{members}</Item>"


def descriptor(
    *items: Mapping[str, str], files: str = FILE, disks: str = DISK, more: str = "", head: str = ""
) -> str:
    """A descriptor of one machine."""
    hardware = "".join(item(each) for each in items or (CPU, MEMORY, DRIVE))
    return f"""<?xml version="1.0"?>{head}
<Envelope xmlns="{_OVF}" xmlns:ovf="{_OVF}" xmlns:rasd="{_RASD}" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References>{files}</References>
  <DiskSection><Info>disks</Info>{disks}</DiskSection>
  <VirtualSystem ovf:id="vm-1">
    <Name>My Server (2)</Name>
    <VirtualHardwareSection>{hardware}{more}</VirtualHardwareSection>
  </VirtualSystem>
</Envelope>"""


def archive(path: Path, files: Mapping[str, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar with these files."""
    with tarfile.open(path, "w", format=form) as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return path
