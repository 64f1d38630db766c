"""How much of a volume its file system takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtplane.storage.cdi.sizes import MIB, required_space, usable_space


@given(st.integers(MIB, 2**45), st.sampled_from([0.0, 0.05, 0.055, 0.06, 0.5, 1.0]))
def test_an_image_fits_the_volume_that_was_asked_for_it(image: int, overhead: float) -> None:
    assert usable_space(overhead, required_space(overhead, image)) >= image // MIB * MIB


@pytest.mark.parametrize(("overhead", "volume", "usable"), [(0.06, 11381663335, 10 * 1024**3), (0, MIB, MIB)])
def test_usable_space(overhead: float, volume: int, usable: int) -> None:
    assert usable_space(overhead, volume) == usable
