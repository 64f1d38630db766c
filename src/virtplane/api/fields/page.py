"""The page that lists every field. ``python -m virtplane.api.fields.page docs/fields.md`` regenerates it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from virtplane.api.fields.kinds import KINDS
from virtplane.api.fields.state import Field, State
from virtplane.api.fields.structs import around, entry_of, paths, struct_of

_HEAD = """\
# Fields

What each field of the accepted API does today. This page is made of the table that admission warns by
(`src/virtplane/api/fields`); write it anew with `python -m virtplane.api.fields.page docs/fields.md`.

- **acts**: something acts upon it. Where only some values do, they are listed, and others are warned of.
- **warns**: accepted, because manifests for KubeVirt have it, but without effect yet. Whoever writes it is
  warned.
- **refused**: admission refuses objects that set it.

`[]` stands behind lists of objects. A row that ends in `…` stands for everything inside. Claims and data
volumes are plugged into a running guest and unplugged from it (`addvolume`, `removevolume`, or a changed
template), as disks on `scsi` or `virtio` and as media of CD-ROM drives. A dump of a
running guest's memory goes into a claim that is plugged in for it.
"""
_NESTED = {
    "VirtualMachine": ("template.spec", "template.spec.", "VirtualMachineInstance"),
    "VirtualMachineInstancePreset": ("domain", "", "VirtualMachineInstance"),
    "VirtualMachineInstanceReplicaSet": ("template.spec", "template.spec.", "VirtualMachineInstance"),
    "VirtualMachinePool": ("virtualMachineTemplate.spec", "virtualMachineTemplate.spec.", "VirtualMachine"),
}
"""A field of a kind that another kind has a section for, and what stands before the paths listed there."""

_SAME = {
    "VirtualMachineClusterInstancetype": "VirtualMachineInstancetype",
    "VirtualMachineClusterPreference": "VirtualMachinePreference",
}


def page() -> str:
    """The page as Markdown."""
    sections = [_section(kind) for kind in KINDS if kind not in _SAME]
    return "\n".join([_HEAD, *sections])


def rows(kind: str) -> Iterator[tuple[str, Field]]:
    """The fields of a kind's spec with their entries, those of an object as a whole in one row."""
    table = KINDS[kind]
    shown = set()
    for path in paths(struct_of(kind)):
        field = entry_of(table, path)
        assert field is not None, f"{kind}: {path} has no entry"
        name = path if path in table else next(p for p in around(path) if table.get(p) is field)
        if name not in shown:
            shown.add(name)
            yield (name if name == path else f"{name} …"), field


def _section(kind: str) -> str:
    also = [other for other, same in _SAME.items() if same == kind]
    title = " and ".join([kind, *also])
    nested, prefix, other = _NESTED.get(kind, ("", "", ""))
    elsewhere = dict(rows(other)) if nested else {}
    lines = [f"## {title}", ""]
    if nested:
        lines += [f"`{nested}` is as in [{other}](#{other.lower()}), but for what is listed here.", ""]
    lines += ["| field | state | what it does |", "|---|---|---|"]
    for path, field in rows(kind):
        if elsewhere.get(path.removeprefix(prefix)) != field:
            lines.append(f"| `{path}` | {field.state} | {_text(field)} |")
    return "\n".join([*lines, ""])


def _text(field: Field) -> str:
    text = field.text or ("nothing" if field.state is State.WARNS else "")
    if field.values:
        text += f" (only {', '.join(f'`{value}`' for value in sorted(field.values))})"
    if field.ineffective:
        text += f" (but not {', '.join(f'`{value}`' for value in sorted(field.ineffective))})"
    if field.defaulted:
        text += " (admission fills it into instances; templates are warned of)"
    return text


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
