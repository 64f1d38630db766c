"""References of images."""

from __future__ import annotations

import pytest

from virtplane.api.images import renamed

_DIGEST = "@sha256:0123"


@pytest.mark.parametrize(
    ("image", "registry", "tag", "wanted"),
    [
        ("r.test:5000/a/product:1", "", "", "r.test:5000/a/product:1"),
        ("r.test:5000/a/product:1", "", "2", "r.test:5000/a/product:2"),
        ("r.test:5000/a/product:1", "m.test:1/b/", "", "m.test:1/b/product:1"),
        ("product", "m.test", "", "m.test/product"),
        ("product", "", "2", "product:2"),
        (f"r.test/product:1{_DIGEST}", "m.test", "", f"m.test/product:1{_DIGEST}"),
        (f"r.test/product{_DIGEST}", "m.test", "2", "m.test/product:2"),
    ],
)
def test_an_image_has_the_same_name_elsewhere(image: str, registry: str, tag: str, wanted: str) -> None:
    assert renamed(image, registry, tag) == wanted
    assert renamed(wanted, registry, tag) == wanted
