"""The status of a DataSource, for whoever changes what it leads to."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.structs import encode
from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource, DataSourceStatus
from virtplane.cluster.objects import status_patch
from virtplane.storage.cdi.controller.conditions import documents, with_condition
from virtplane.storage.cdi.controller.datasources import decisions
from virtplane.storage.cdi.controller.datasources.decisions import Verdict


def status_changes(source: DataSource, content: DataSourceSource, verdict: Verdict) -> list[JsonObject]:
    """The operations by which the status says what the DataSource leads to, and whether that can be used."""
    shown = decisions.shown_source(verdict, content)
    conditions = with_condition(
        source.status.conditions,
        decisions.READY,
        "True" if verdict.is_ready else "False",
        verdict.reason,
        verdict.message,
        times.now_rfc3339(),
        of_another=shown != source.status.source,
    )
    after: JsonObject = {"conditions": documents(conditions), "source": encode(shown)}
    return status_patch(source, DataSourceStatus, source.status, after)
