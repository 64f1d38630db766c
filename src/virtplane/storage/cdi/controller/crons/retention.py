"""Which imports go: the oldest, but never what a DataSource beside it leads to."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.cluster.caches import HasMetadata

Kept = TypeVar("Kept", bound=HasMetadata)

DEFAULT_IMPORTS_TO_KEEP = 3
_NEVER = "Never"


def imports_to_keep(cron: DataImportCron) -> int | None:
    """How many imports stay; None for all."""
    if cron.spec.garbage_collect == _NEVER:
        return None
    wanted = cron.spec.imports_to_keep
    return DEFAULT_IMPORTS_TO_KEEP if wanted is None or wanted < 0 else wanted


def named_claims(sources: Iterable[DataSource]) -> frozenset[tuple[str, str]]:
    """The claims (namespace and name) that DataSources of their own namespace lead to.

    Those of others may name what they like: they keep nobody else's storage.
    """
    return frozenset(
        (source.metadata.namespace, claim.name)
        for source in sources
        if (claim := source.spec.source.pvc) is not None and _is_local(source, claim.namespace)
    )


def named_snapshots(sources: Iterable[DataSource]) -> frozenset[tuple[str, str]]:
    """The same for snapshots."""
    return frozenset(
        (source.metadata.namespace, snapshot.name)
        for source in sources
        if (snapshot := source.spec.source.snapshot) is not None and _is_local(source, snapshot.namespace)
    )


def _is_local(source: DataSource, namespace: str | None) -> bool:
    return not namespace or namespace == source.metadata.namespace


def in_use(cron: DataImportCron) -> frozenset[str]:
    """The names of the imports that the cron itself still needs."""
    needed = {each.data_volume_name for each in cron.status.current_imports}
    last = cron.status.last_imported_pvc
    return frozenset(needed | ({last.name} if last is not None else set()))


def surplus(kept: int, found: Sequence[Kept], needed: Container[str]) -> list[Kept]:
    """The objects beyond the `kept` newest by the time of their last use; those that are going count not.

    Those named in `needed` count as the newest: what is in use takes one of the places.
    """
    living = [each for each in found if not each.metadata.is_being_deleted]
    newest_first = sorted(
        living, key=lambda each: (each.metadata.name in needed, _last_use(each)), reverse=True
    )
    return newest_first[kept:]


def _last_use(obj: HasMetadata) -> tuple[str, str, str]:
    used = obj.metadata.annotations.get(names.LAST_USE_TIME, "")
    return used, obj.metadata.created, obj.metadata.name
