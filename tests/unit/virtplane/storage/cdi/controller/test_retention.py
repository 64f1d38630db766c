"""Which imports of a cron stay."""

from __future__ import annotations

from kubecore.objects.structs import decode
from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller.crons import retention


def _source(namespace: str, **content: dict[str, str]) -> DataSource:
    return decode(
        DataSource, {"metadata": {"name": "s", "namespace": namespace}, "spec": {"source": content}}
    )


def test_data_sources_of_other_namespaces_keep_no_import() -> None:
    sources = [
        _source("images", pvc={"name": "a", "namespace": "images"}),
        _source("images", snapshot={"name": "b", "namespace": ""}),
        _source("tenant", pvc={"name": "c", "namespace": "images"}),
        _source("tenant", snapshot={"name": "d", "namespace": "images"}),
    ]
    assert retention.named_claims(sources) == {("images", "a")}
    assert retention.named_snapshots(sources) == {("images", "b")}


def _claim(name: str, used: str) -> PersistentVolumeClaim:
    metadata = {"name": name, "annotations": {names.LAST_USE_TIME: f"2026-01-01T00:00:{used}.000000Z"}}
    return decode(PersistentVolumeClaim, {"metadata": metadata})


def test_what_is_in_use_takes_the_place_of_what_was_used_later() -> None:
    claims = [_claim("a", "01"), _claim("b", "02"), _claim("c", "03")]
    assert [each.metadata.name for each in retention.surplus(2, claims, ())] == ["a"]
    assert [each.metadata.name for each in retention.surplus(2, claims, {"a"})] == ["b"]
