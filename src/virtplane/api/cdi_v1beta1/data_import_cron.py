"""DataImportCrons: content that is imported again whenever its source has changed."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSpec, DataVolumeStatus
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourcePVC
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, Int32, Time, describe, mark
from virtplane.api.meta_v1 import ObjectMeta


class CronTemplate(ApiStruct, kw_only=True):
    """The DataVolumes to make: labels, annotations and spec. Their source is a registry or a claim."""

    api_version: Annotated[str, describe("No effect.")] = ""
    kind: Annotated[str, describe("No effect.")] = ""
    metadata: Annotated[
        ObjectMeta, describe("Labels and annotations of the DataVolumes; names are made.")
    ] = ObjectMeta()
    spec: Annotated[DataVolumeSpec, REQUIRED] = DataVolumeSpec()
    status: Annotated[DataVolumeStatus, describe("No effect.")] = DataVolumeStatus()


class DataImportCronSpec(ApiStruct, kw_only=True):
    """What is imported and when, which DataSource stands for it, and what is kept. Cannot be changed."""

    garbage_collect: Annotated[
        str | None, describe("Outdated (default) deletes old imports; Never keeps all.")
    ] = None
    imports_to_keep: Annotated[Int32 | None, describe("Imports that are kept, the newest; 3 by default.")] = (
        None
    )
    managed_data_source: Annotated[
        str, REQUIRED, describe("DataSource that stands for the newest import; made if there is none.")
    ] = ""
    retention_policy: Annotated[
        str | None,
        describe(
            "When the cron is deleted: All (default) keeps the imports, None deletes them and the DataSource."
        ),
    ] = None
    schedule: Annotated[
        str, REQUIRED, describe("When the source is looked at: five fields, as cron has them. Empty: never.")
    ] = ""
    service_account_name: Annotated[
        str | None,
        mark(minLength=1),
        describe("ServiceAccount that must be allowed to clone the source claim; default by default."),
    ] = None
    template: Annotated[CronTemplate, REQUIRED] = CronTemplate()


class ImportStatus(ApiStruct, kw_only=True):
    """An import that goes on, or the newest one."""

    data_volume_name: Annotated[str, describe("Name of the DataVolume and its claim.")] = field(
        name="DataVolumeName"
    )
    digest: Annotated[str, describe("Digest of the content.")] = field(name="Digest")


class DataImportCronStatus(ApiStruct, kw_only=True):
    """What was imported and when, written by cdi-deployment."""

    conditions: Annotated[tuple[HeartbeatCondition, ...], describe("Progressing and UpToDate.")] = ()
    current_imports: Annotated[
        tuple[ImportStatus, ...], describe("The import that goes on, or the newest one.")
    ] = ()
    last_execution_timestamp: Annotated[Time | None, describe("When the source was last looked at.")] = None
    last_import_timestamp: Annotated[Time | None, describe("When content was last imported.")] = None
    last_imported_pvc: Annotated[
        DataVolumeSourcePVC | None, describe("Claim, or snapshot, of the newest finished import.")
    ] = field(default=None, name="lastImportedPVC")
    source_format: Annotated[str | None, describe("How the content is kept: pvc or snapshot.")] = None


class DataImportCron(ApiStruct, kw_only=True):
    """Content that is imported again whenever its source has changed."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataImportCronSpec, REQUIRED] = DataImportCronSpec()
    status: DataImportCronStatus = DataImportCronStatus()
