"""gRPC interfaces of a node, from tables of names and numbers (the JSON files beside this module).

No Python package carries these interfaces in current form, and generated code would have to be committed;
a descriptor pool built when first asked costs a few milliseconds and keeps the numbers readable.
"""

from __future__ import annotations

from kindling.node.wire.interface import Interface, Message, load_interface, to_plain

__all__ = ["Interface", "Message", "load_interface", "to_plain"]
