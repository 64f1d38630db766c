"""Calls of those who have a say in a guest, over gRPC at Unix sockets: hook sidecars and plugins.

None of them is trusted: what they answer is limited in size and time, and the domains that they make have the
rights of the launcher, no more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree

from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.xml import Element
from virtplane.compute.handler.launchers.sockets import reachable

if TYPE_CHECKING:
    from kubecore.wire import Message

ANSWER_BYTES = 1 << 20
QUOTED = 200
"""Characters of a foreign message that are repeated."""

_CHANNEL = (
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", ANSWER_BYTES),
    ("grpc.max_metadata_size", 8192),
)


class HookError(ValueError):
    """A hook does not answer, or its answer cannot be used."""


class Channel:
    """A gRPC channel to the socket `path`, held open meanwhile. Others write to the folder `below`."""

    def __init__(self, path: Path, below: Path, *, links: bool = True) -> None:
        self._reach = reachable(path, below=below, links=links)

    def __enter__(self) -> Any:
        import grpc  # noqa: PLC0415 - few guests have hooks, and loading it takes memory

        address = self._reach.__enter__()
        self._made = grpc.insecure_channel(f"unix:{address}", options=_CHANNEL)
        return self._made

    def __exit__(self, *error: Any) -> None:
        self._made.close()
        self._reach.__exit__(*error)


def asked(call: Callable[..., Message], request: Message, seconds: float, failure: str) -> Message:
    """The answer of a call. Raises HookError with the words `failure` and what was wrong."""
    import grpc  # noqa: PLC0415 - as above

    try:
        return call(request, timeout=seconds)
    except grpc.RpcError as error:
        why = f"{error.code().name}: {str(error.details() or '')[:QUOTED]}"
        raise HookError(f"{failure}: {why}") from error


def connect(channel: Any, seconds: float) -> None:
    """Wait until somebody accepts connections: a socket is there a little earlier. Raises HookError."""
    import grpc  # noqa: PLC0415 - as above

    try:
        grpc.channel_ready_future(channel).result(seconds)
    except grpc.FutureTimeoutError as error:
        raise HookError(f"nobody accepted a connection within {seconds:g} s") from error


def document(vmi: VirtualMachineInstance) -> bytes:
    """The instance as hooks are told it."""
    return json.dumps(encode(vmi)).encode()


def parsed(who: str, xml: bytes) -> Element:
    """The root of a document that `who` made. Raises HookError."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        return etree.fromstring(xml, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise HookError(f"{who} answers with no XML: {str(error)[:QUOTED]}") from error


def own_domain(who: str, name: str, xml: bytes) -> Element:
    """The domain `name` as `who` made it (pure). Raises HookError if it is another one.

    Whatever devices it has, QEMU opens them with the launcher's rights.
    """
    root = parsed(who, xml)
    if root.tag != "domain" or root.findtext("name") != name:
        raise HookError(f"{who} answers with another domain than {name}")
    return root
