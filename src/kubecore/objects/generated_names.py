"""Names of bounded length, made of two parts."""

from __future__ import annotations

from kubecore.objects.names import LABEL_MAX


def bounded(base: str, suffix: str, longest: int = LABEL_MAX) -> str:
    """``base-suffix``; where that is too long, with a hash in the place of what is left out.

    The rule of CDI and of the hostpath provisioner's operator.
    """
    name = f"{base}-{suffix}"
    if len(name) <= longest:
        return name
    kept = longest - 10 - len(suffix)
    if kept <= 0:
        return f"{base[: longest - 9]}-{fnv32a(name):08x}"
    return f"{base[:kept]}-{fnv32a(base):08x}-{suffix}"


def fnv32a(text: str) -> int:
    """FNV-1a of 32 bits."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
