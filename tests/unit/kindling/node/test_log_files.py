"""The files of ``/var/log`` that the node's endpoint offers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.kindling.node.conftest import Pki
from tests.unit.kindling.node.test_routes import get, routes

from kindling.node.server import log_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "log"
    (found / "pods").mkdir(parents=True)
    (found / "pods" / "a & b.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "secret").write_text("of the machine")
    return found


async def test_files_and_directories_are_answered(pki: Pki, root: Path) -> None:
    async with routes(pki, root / "none") as port:
        head, body = await get(pki, port, "/logs/")
        assert b"Content-Type: text/html; charset=utf-8" in head
        assert body == b'<pre>\n<a href="pods/">pods/</a>\n</pre>\n'
        _, body = await get(pki, port, "/logs/pods")
        assert body == b'<pre>\n<a href="a%20%26%20b.log">a &amp; b.log</a>\n</pre>\n'
        head, body = await get(pki, port, "/logs/pods/a%20&%20b.log")
        assert b" 200 " in head
        assert b"one\ntwo\n" in body
        head, _ = await get(pki, port, "/logs/none")
        assert b" 404 " in head


def test_nothing_leads_out_of_the_logs(root: Path) -> None:
    """Pods with the folder as their hostPath make links in it."""
    (root / "absolute").symlink_to(root.parent / "secret")
    (root / "relative").symlink_to("../secret")
    (root / "directory").symlink_to("..")
    (root / "inside").symlink_to("pods")
    tried = (
        "absolute",
        "relative",
        "../secret",
        "directory/secret",
        str(root.parent / "secret"),
        "inside",
        "\0",
    )
    assert [log_files.find(path, root) for path in tried] == [None] * len(tried)


def test_pipes_are_no_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert log_files.find("pipe", root) is None
    assert log_files.find("", root / "gone") is None


async def test_no_more_is_read_than_there_was(root: Path) -> None:
    found = log_files.find("pods/a & b.log", root)
    assert found is not None
    with (root / "pods" / "a & b.log").open("ab") as file:
        file.write(b"three\n")
    assert b"".join([piece async for piece in found.pieces()]) == b"one\ntwo\n"
    found.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.descriptor)
