"""The metric by which virt-controller and virt-handler tell how often they have written of an instance."""

from __future__ import annotations

SYNCS = (
    "kubevirt_vmi_sync_total",
    "How often an instance was written to bring it nearer to what it should be",
    ("namespace", "name"),
)
"""Name, text and labels."""
