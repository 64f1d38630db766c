"""How an import can end. The texts are CDI's: controllers match them and show them to users."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_FULL = re.compile("no space left on device|disk quota exceeded", re.IGNORECASE)
_MESSAGE_BYTES = 4096
"""What a kubelet keeps of a termination message."""

IMPORT_COMPLETE = "Import Complete"


class ImportFailed(Exception):
    """The import cannot go on; the text is the user's. The pod is restarted and tries again."""


class TooLarge(ImportFailed):
    """The disk does not fit into the volume."""


class ScratchNeeded(Exception):
    """The source's format needs a place for the whole file first; the controller brings a scratch claim."""


class ChecksumMismatch(Exception):
    """The source is not what the user named; trying again changes nothing."""

    def __init__(self, algorithm: str, expected: str, calculated: str) -> None:
        super().__init__(
            "checksum validation failed: checksum mismatch: "
            f"expected {algorithm}:{expected}, calculated {algorithm}:{calculated}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the termination message tells the controller."""

    message: str = IMPORT_COMPLETE
    scratch_space_required: bool = False
    preallocation_applied: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    vddk_version: str = ""
    vddk_host: str = ""

    def text(self) -> str:
        """The termination message: JSON of at most 4096 bytes, labels left out first."""
        document: dict[str, object] = {}
        if self.scratch_space_required:
            document["scratchSpaceRequired"] = True
        if self.preallocation_applied:
            document["preallocationApplied"] = True
        if self.vddk_version or self.vddk_host:
            document["vddkInfo"] = {"Version": self.vddk_version, "Host": self.vddk_host}
        if self.labels:
            document["labels"] = dict(self.labels)
        if self.message:
            document["message"] = one_line(self.message)
        text = json.dumps(document, ensure_ascii=False)
        if len(text.encode()) > _MESSAGE_BYTES:
            document.pop("labels", None)
            text = json.dumps(document, ensure_ascii=False)
        return text


def one_line(text: str) -> str:
    """`text` as one line that fits a termination message.

    A full volume is told in lower case, by which the controller knows it, whichever program met it.
    """
    joined = _FULL.sub(lambda found: found[0].lower(), " ".join(text.split()))
    return joined.encode()[: _MESSAGE_BYTES // 2].decode(errors="ignore")
