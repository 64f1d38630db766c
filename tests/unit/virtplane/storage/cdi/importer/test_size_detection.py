"""The size-detection process: what it says, and with which code it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtplane.storage.cdi.importer import sizedetection


def _run(*arguments: str | Path) -> int:
    return sizedetection.main([str(each) for each in arguments])


def test_size_is_that_of_the_file_whatever_its_guest_wrote_into_it(tmp_path: Path) -> None:
    image, said = tmp_path / "disk.img", tmp_path / "said"
    image.write_bytes(b"QFI\xfb" + bytes(20) + (1 << 60).to_bytes(8, "big") + bytes(4064))
    assert _run("-image-path", image, "-termination-path", said) == 0
    assert said.read_text() == "4096"


def test_every_problem_has_its_code(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    assert _run("-image-path", image) == sizedetection.INVALID_PATH
    assert _run("-image-path", tmp_path) == sizedetection.INVALID_FILE
    image.write_bytes(b"")
    assert _run("-image-path", image) == sizedetection.INVALID_FILE
    (tmp_path / "link").symlink_to(image)
    assert _run("-image-path", tmp_path / "link") == sizedetection.INVALID_FILE
    image.write_bytes(b"x")
    missing = tmp_path / "no" / "where"
    assert _run("-image-path", image, "-termination-path", missing) == sizedetection.BAD_TERMINATION_FILE


def test_bad_arguments_have_theirs() -> None:
    with pytest.raises(SystemExit) as raised:
        _run("-path", "x")
    assert raised.value.code == sizedetection.BAD_ARGUMENTS
