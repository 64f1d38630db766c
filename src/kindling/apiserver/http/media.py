"""Content negotiation: JSON or YAML; objects, tables or metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OFFERED = (JSON, YAML, PROTOBUF)
LISTED = (*OFFERED, f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
"""What errors list; protobuf is read (see ``kinds.encoding.protobuf``) but never chosen for responses."""

TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
PARTIAL_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Accepted:
    """One clause of an Accept header."""

    type: str
    parameters: dict[str, str]


@dataclass(frozen=True, slots=True)
class Media:
    """The negotiated form of a response."""

    type: str = JSON
    as_kind: str = ""
    """Empty, Table, PartialObjectMetadata or PartialObjectMetadataList."""
    as_version: str = "v1"
    pretty: bool = False


def parse_accept(header: str) -> list[Accepted]:
    """The clauses of an Accept header, best first (by quality, then by order)."""
    clauses: list[tuple[float, int, Accepted]] = []
    for position, clause in enumerate(header.split(",")):
        media_type, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest if part)
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if media_type:
            clauses.append((-quality, position, Accepted(media_type.lower(), parameters)))
    return [accepted for _, _, accepted in sorted(clauses, key=lambda entry: entry[:2])]


def is_plain_json(header: str | None) -> bool:
    """Whether the header accepts plain JSON: the usual case, without parsing."""
    return header in (None, "", JSON, "*/*")


def matches_any(accepted: list[Accepted], offered: Sequence[str]) -> bool:
    """Whether some clause names an offered type (wildcards of a subtype do not count)."""
    return any(clause.type in ("*/*", *offered) for clause in accepted)


def choose(accepted: list[Accepted], *, transforms: bool) -> Media | None:
    """The best clause that can be served, or None. `transforms`: Table and PartialObjectMetadata are
    offered.
    """
    for clause in accepted:
        media_type = JSON if clause.type in ("*/*", "application/*") else clause.type
        if media_type not in (JSON, YAML):
            continue
        wanted = clause.parameters.get("as", "")
        if not wanted:
            return Media(media_type)
        if not transforms:
            continue
        group, version = clause.parameters.get("g", ""), clause.parameters.get("v", "")
        if group != "meta.k8s.io" or version not in ("v1", "v1beta1"):
            continue
        if wanted in (TABLE, PARTIAL, PARTIAL_LIST):
            return Media(media_type, wanted, version)
    return None
