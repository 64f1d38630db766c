"""Which imports of a cron stay."""

from __future__ import annotations

from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.data_source import DataSource
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
