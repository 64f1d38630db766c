"""Images and appliances that are damaged anywhere: refused with a message, or read as something harmless."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from virtplane.cli.virtctl.contents import whole
from virtplane.cli.virtctl.importing.appliances import read_appliance
from virtplane.cli.virtctl.importing.diskimages import inspect

from .appliance_files import archive, descriptor

_FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_DAMAGE = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=12)), min_size=1, max_size=6
)
_CUT = st.integers(0, 1 << 20)


def damaged(content: bytes, damage: list[tuple[int, bytes]], cut: int, longest: int) -> bytes:
    """`content` with some bytes replaced, all of them within `longest`, and its end perhaps missing."""
    changed = bytearray(content)
    for at, replacement in damage:
        begin = at % min(longest, len(content))
        changed[begin : begin + len(replacement)] = replacement
    return bytes(changed[: cut % (2 * len(changed))])


@pytest.mark.parametrize(("form", "longest"), [("qcow2", 104), ("vmdk", 1024), ("vdi", 512), ("vpc", 512)])
def test_a_damaged_header_is_told_of_or_harmless(tmp_path: Path, form: str, longest: int) -> None:
    path = tmp_path / "image"
    subprocess.run(["qemu-img", "create", "-q", "-f", form, str(path), "3M"], check=True)
    content = path.read_bytes()

    @_FEW
    @given(_DAMAGE, _CUT)
    def check(damage: list[tuple[int, bytes]], cut: int) -> None:
        path.write_bytes(damaged(content, damage, cut, longest))
        _inspected(path)

    check()


def test_a_damaged_vhdx_is_told_of_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "image"
    subprocess.run(["qemu-img", "create", "-q", "-f", "vhdx", str(path), "3M"], check=True)
    content = path.read_bytes()[: 8 << 20]
    regions, metadata = 192 << 10, content.index(b"metadata")

    @_FEW
    @given(st.sampled_from([regions, metadata]), _DAMAGE, _CUT)
    def check(begin: int, damage: list[tuple[int, bytes]], cut: int) -> None:
        part = damaged(content[begin : begin + 512], damage, cut, 512)
        path.write_bytes(content[:begin] + part + content[begin + len(part) :])
        _inspected(path)

    check()


def _inspected(path: Path) -> None:
    try:
        found = inspect(whole(path), "image")
    except click.ClickException as error:
        assert error.message.startswith("image: ")
        return
    assert found.virtual_bytes is None or 0 < found.virtual_bytes <= 1 << 50


def test_a_damaged_appliance_is_told_of_or_harmless(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.ova", {"a.ovf": descriptor().encode(), "disk1.vmdk": b"x" * 600})
    content = path.read_bytes()

    @_FEW
    @given(_DAMAGE, _CUT)
    def check(damage: list[tuple[int, bytes]], cut: int) -> None:
        path.write_bytes(damaged(content, damage, cut, 5120))
        size = path.stat().st_size
        try:
            found = asyncio.run(read_appliance(whole(path)))
        except click.ClickException as error:
            assert error.message.startswith(f"{path}: ")
            return
        for disk in found.disks:
            assert disk.content is None or 0 <= disk.content.offset <= size - disk.content.size

    check()


@pytest.mark.parametrize("encoding", ["x-none", "UTF-7", "ISO-8859-1"])
def test_encodings_are_no_way_around_the_rules(tmp_path: Path, encoding: str) -> None:
    text = descriptor(head='+ADwAIQ-DOCTYPE x [+ADwAIQ-ENTITY a "b"+AD4]+AD4')
    text = text.replace('version="1.0"', f'version="1.0" encoding="{encoding}"')
    path = archive(tmp_path / "a.ova", {"a.ovf": text.encode()})
    with pytest.raises(click.ClickException):
        asyncio.run(read_appliance(whole(path)))
