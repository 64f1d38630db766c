"""What is logged of troubles that last."""

from __future__ import annotations

import logging

import pytest

from virtplane.compute.handler.troubles import Trouble


def test_a_trouble_that_lasts_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(logging.getLogger("test"), "It cannot be set; trying again", node="node01")
    for reason in ("refused", "refused", "lost", "lost"):
        trouble.met(OSError(reason))
    assert [(each.message, each.__dict__["node"], each.__dict__["err"]) for each in caplog.records] == [
        ("It cannot be set; trying again", "node01", "refused"),
        ("It cannot be set; trying again", "node01", "lost"),
    ]


def test_a_trouble_that_comes_back_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(logging.getLogger("test"), "It cannot be set; trying again")
    trouble.met(OSError("refused"))
    trouble.over()
    trouble.met(OSError("refused"))
    assert [each.__dict__["err"] for each in caplog.records] == ["refused", "refused"]
