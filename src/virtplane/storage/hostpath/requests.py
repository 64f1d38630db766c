"""What CSI requests ask for, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubecore.wire import Message
from virtplane.storage.hostpath import images
from virtplane.storage.hostpath.failures import Code, CsiFailure, invalid
from virtplane.storage.hostpath.pool import (
    BLOCK,
    DIRECTORY,
    FILE_SYSTEM,
    IMAGE,
    Content,
    Format,
    Mode,
    is_identifier,
)

POOL_PARAMETER = "storagePool"
FORMAT_PARAMETER = "volumeFormat"
"""Of StorageClasses: ``image`` or ``directory``, which is the default because upstream's classes mean it."""
LEGACY_POOL = "legacy"
EPHEMERAL = "csi.storage.k8s.io/ephemeral"

_DEFAULT_SIZE = 1 << 30
_ALIGNMENT = images.MIB
_LARGEST = 1 << 60
_MULTI_NODE = frozenset({3, 4, 5})
"""Values of VolumeCapability.AccessMode.Mode."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sizes that a request accepts, in bytes; 0 is no limit."""

    required: int
    limit: int

    def allows(self, size: int) -> bool:
        """Whether a volume of `size` will do."""
        return size >= self.required and not 0 < self.limit < size


@dataclass(frozen=True, slots=True)
class NewVolume:
    """A volume to make."""

    id: str
    content: Content
    range: Range
    is_multi_node: bool
    snapshot: str
    """The snapshot to copy, or empty."""
    volume: str
    """The volume to copy, or empty."""

    @property
    def origin(self) -> str:
        """As the record has it."""
        if self.snapshot:
            return f"snapshot/{self.snapshot}"
        return f"volume/{self.volume}" if self.volume else ""


def pool_name(parameters: Mapping[str, str]) -> str:
    """The pool that a class's parameters name."""
    return parameters.get(POOL_PARAMETER, LEGACY_POOL)


def new_volume(request: Message) -> NewVolume:
    """What a CreateVolumeRequest asks for. Raises CsiFailure."""
    name = request.name
    if not name:
        raise invalid("name missing in request")
    if not is_identifier(name):
        raise invalid(f"name {name!r} cannot be the name of a volume")
    capabilities = list(request.volume_capabilities)
    if not capabilities:
        raise invalid("volume capabilities missing in request")
    form = _format(request.parameters)
    mode = _mode(capabilities)
    if form == DIRECTORY and mode == BLOCK:
        raise invalid("must have mount access type")
    fs_type = _fs_type(capabilities) if form == IMAGE and mode == FILE_SYSTEM else ""
    sizes = range_of(request.capacity_range)
    size = _size(sizes, form, fs_type)
    source = request.volume_content_source
    kind = source.WhichOneof("type")
    snapshot = source.snapshot.snapshot_id if kind == "snapshot" else ""
    volume = source.volume.volume_id if kind == "volume" else ""
    if kind and not (snapshot or volume):
        raise invalid("volume content source has no id")
    return NewVolume(
        id=name,
        content=Content(format=form, mode=mode, fs_type=fs_type, size=size),
        range=sizes,
        is_multi_node=not all(map(is_of_one_node, capabilities)),
        snapshot=snapshot,
        volume=volume,
    )


def range_of(message: Message) -> Range:
    """A CapacityRange. Raises CsiFailure."""
    required, limit = message.required_bytes, message.limit_bytes
    if required < 0 or limit < 0:
        raise invalid("capacity must not be negative")
    if 0 < limit < required:
        raise invalid(f"limit of {limit} bytes is less than the required {required}")
    if required > _LARGEST:
        raise CsiFailure(Code.OUT_OF_RANGE, f"no volume can have {required} bytes")
    return Range(required, limit)


def aligned(size: int) -> int:
    """`size` rounded up to what images are made in."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def is_of_one_node(capability: Message) -> bool:
    """Whether a volume is asked for that one node uses at a time."""
    return capability.access_mode.mode not in _MULTI_NODE


def is_supported(capabilities: Sequence[Message], content: Content) -> bool:
    """Whether a volume with this content can be used in all of these ways."""
    wanted = "block" if content.mode == BLOCK else "mount"
    return all(capability.WhichOneof("access_type") == wanted for capability in capabilities)


def _format(parameters: Mapping[str, str]) -> Format:
    given = parameters.get(FORMAT_PARAMETER, DIRECTORY)
    if given == DIRECTORY:
        return DIRECTORY
    if given == IMAGE:
        return IMAGE
    raise invalid(f"parameter {FORMAT_PARAMETER} is {given!r}; it must be {IMAGE} or {DIRECTORY}")


def _mode(capabilities: Sequence[Message]) -> Mode:
    kinds = {capability.WhichOneof("access_type") for capability in capabilities}
    if kinds == {"block"}:
        return BLOCK
    if kinds == {"mount"}:
        return FILE_SYSTEM
    raise invalid(
        "must have mount access type" if None in kinds else "volumes are either mounted or block devices"
    )


def _fs_type(capabilities: Sequence[Message]) -> str:
    named = {capability.mount.fs_type for capability in capabilities} - {""}
    if len(named) > 1:
        raise invalid("volume capabilities name several file systems")
    fs_type = named.pop() if named else images.XFS
    if fs_type not in images.FILE_SYSTEMS:
        raise invalid(f"file system {fs_type!r} is not one of {', '.join(images.FILE_SYSTEMS)}")
    return str(fs_type)


def _size(sizes: Range, form: Format, fs_type: str) -> int:
    if form == DIRECTORY:
        return sizes.required
    size = sizes.required or min(_DEFAULT_SIZE, sizes.limit or _DEFAULT_SIZE)
    least = images.least_size(fs_type) if fs_type else _ALIGNMENT
    size = aligned(max(size, least))
    if not sizes.allows(size):
        raise CsiFailure(
            Code.OUT_OF_RANGE,
            f"the least size of this volume is {size} bytes, but the limit is {sizes.limit}",
        )
    return size
