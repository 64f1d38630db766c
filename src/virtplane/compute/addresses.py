"""IP addresses as users write them."""

from __future__ import annotations

import re

_LEADING_ZEROS = re.compile(r"\b0+(?=[0-9])", re.ASCII)


def without_leading_zeros(text: str) -> str:
    """The address or network in `text` with 010 written as 10.

    Kubernetes has always read 010 as ten, whatever other systems make of it; ``ipaddress`` refuses it.
    """
    return _LEADING_ZEROS.sub("", text)
