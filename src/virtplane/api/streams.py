"""How bytes of consoles, displays and forwarded ports travel in websockets: in binary messages."""

from __future__ import annotations

SUBPROTOCOL = "plain.kubevirt.io"

MAX_MESSAGE_BYTES = 4 << 20
"""A longer message ends its stream: a message is held in memory until it is complete."""
