"""Names that CDI generates."""

from __future__ import annotations

import pytest

from virtplane.api import cdi_names


@pytest.mark.parametrize(
    ("base", "suffix", "longest", "name"),
    [
        ("importer", "disk", 253, "importer-disk"),
        ("cleanup-pool", "s" * 51, 63, "cl-26f44bf8-" + "s" * 51),
        ("cdi-upload", "x" * 250, 253, "cdi-upload-58d3a198"),
    ],
)
def test_long_names_have_a_hash_in_the_place_of_what_is_left_out(
    base: str, suffix: str, longest: int, name: str
) -> None:
    assert cdi_names.name(base, suffix, longest) == name
    assert len(name) <= longest


def test_names_for_a_claim() -> None:
    assert cdi_names.importer_pod("prime-1") == "importer-prime-1"
    assert cdi_names.checkpoint_pod("disk", "two") == "importer-disk-checkpoint-two"
    assert cdi_names.scratch_claim("disk") == "disk-scratch"
    assert cdi_names.upload_pod("disk") == "cdi-upload-disk"
    assert cdi_names.clone_source_pod("u-1") == "u-1-source-pod"
    assert cdi_names.size_detection_pod("u-1") == "size-detection-u-1"
    assert cdi_names.proxy_config_map("disk") == "import-proxy-cm-disk"


def test_services_have_names_that_labels_may_have() -> None:
    assert cdi_names.upload_service("my.disk") == "cdi-upload-my-disk"
    long = cdi_names.upload_service("x" * 100)
    assert len(long) == 63
    assert long.startswith("cdi-upload-xxx")
    assert long.endswith("-cdi")
