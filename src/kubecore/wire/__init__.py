"""gRPC interfaces of a node (CRI, CSI, device plugins), built from tables of field numbers.

The tables are the JSON files beside this module. No Python package carries these interfaces in current form,
and generated code would have to be committed; a descriptor pool built at its first use costs a few
milliseconds and keeps the numbers readable.
"""

from __future__ import annotations

from kubecore.wire.failures import rpc_text
from kubecore.wire.interface import Interface, Message, build_interface, load_interface, to_plain

__all__ = ["Interface", "Message", "build_interface", "load_interface", "rpc_text", "to_plain"]
