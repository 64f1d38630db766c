"""Service accounts by which components know each other."""

from __future__ import annotations

VIRT_API = "kubevirt-apiserver"
