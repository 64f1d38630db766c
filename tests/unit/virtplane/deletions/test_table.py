"""The table of finalizers is complete, and its page says the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from virtplane.api import cdi_labels, labels, storage_labels
from virtplane.deletions.holders import HOLDERS, HOSTPATH_FINALIZER, Holder, holder_of
from virtplane.operators.hostpath.product import FINALIZER

pytestmark = pytest.mark.feature("NEW-15")

_WORDS = ("FINALIZER", "PROTECTION", "VOLUME_BEING_CREATED")
_PAGE = Path(__file__).parents[4] / "docs/deletions.md"


def test_every_finalizer_that_a_component_sets_has_a_reason_and_an_end() -> None:
    set_by_us = {
        value: f"{module.__name__}.{name}"
        for module in (labels, cdi_labels, storage_labels)
        for name, value in vars(module).items()
        if isinstance(value, str) and any(word in name for word in _WORDS)
    }
    assert len(set_by_us) > 25
    assert {value: name for value, name in set_by_us.items() if value not in HOLDERS} == {}
    assert FINALIZER == HOSTPATH_FINALIZER


def test_an_attachers_finalizer_is_known_by_its_beginning() -> None:
    assert holder_of("external-attacher/csi-example") is HOLDERS["external-attacher/"]
    assert holder_of("example.com/somebody") is None


def test_the_page_has_the_table() -> None:
    lines = _PAGE.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert rows == [_row(name, holder) for name, holder in HOLDERS.items()]


def _row(finalizer: str, holder: Holder) -> str:
    shown = f"{finalizer}…" if finalizer.endswith("/") else finalizer
    end = f"none: {holder.unbounded}" if holder.unbounded else "10 minutes"
    return f"| `{shown}` | {holder.component} | {holder.waits_for} | {end} |"
