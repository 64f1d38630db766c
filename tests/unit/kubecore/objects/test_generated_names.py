"""Names of bounded length."""

from __future__ import annotations

import pytest

from kubecore.objects.generated_names import bounded, fnv32a


@pytest.mark.parametrize(("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_hash_is_fnv_1a(text: str, value: int) -> None:
    assert fnv32a(text) == value


@pytest.mark.parametrize("length", range(60))
def test_names_are_never_longer_than_they_may_be_and_never_begin_with_a_dash(length: int) -> None:
    name = bounded("b" * 30, "s" * length, 40)
    assert len(name) <= 40
    assert name.startswith("b")
