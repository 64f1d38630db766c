"""The version document, as clients read it."""

from __future__ import annotations

import re
from pathlib import Path

from kindling.apiserver.discovery.version import digest_of, version_document


def test_every_part_has_the_form_that_clients_check() -> None:
    document = version_document()
    assert re.fullmatch(r"\d+", document["major"])
    assert re.fullmatch(r"\d+\+?", document["minor"])
    assert re.fullmatch(r"v\d+\.\d+\.[\w.+-]+", document["gitVersion"])
    assert re.fullmatch(r"[0-9a-f]{40}", document["gitCommit"])


def test_the_digest_goes_by_names_and_contents_of_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    first = digest_of(tmp_path)
    (tmp_path / "a.pyc").write_text("made from it")
    assert digest_of(tmp_path) == first
    (tmp_path / "a.py").write_text("two")
    second = digest_of(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert len({first, second, digest_of(tmp_path)}) == 3
