"""DataImportCrons: content that is imported again whenever its source has changed."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSpec, DataVolumeStatus
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourcePVC
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, Int32, Time, mark
from virtplane.api.meta_v1 import ObjectMeta


class CronTemplate(ApiStruct, kw_only=True):
    """The DataVolumes to make."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataVolumeSpec, REQUIRED] = DataVolumeSpec()
    status: DataVolumeStatus = DataVolumeStatus()


class DataImportCronSpec(ApiStruct, kw_only=True):
    """What is imported and when, which DataSource stands for the newest import, and what is kept."""

    garbage_collect: str | None = None
    """``Outdated`` (default) or ``Never``."""
    imports_to_keep: Int32 | None = None
    """3 where it is not given."""
    managed_data_source: Annotated[str, REQUIRED] = ""
    retention_policy: str | None = None
    """``All`` (default) or ``None``: what stays when the cron is deleted."""
    schedule: Annotated[str, REQUIRED] = ""
    """Five fields, as cron has them; empty: nobody polls."""
    service_account_name: Annotated[str | None, mark(minLength=1)] = None
    template: Annotated[CronTemplate, REQUIRED] = CronTemplate()


class ImportStatus(ApiStruct, kw_only=True):
    """An import that goes on, or the newest one."""

    data_volume_name: str = field(name="DataVolumeName")
    digest: str = field(name="Digest")


class DataImportCronStatus(ApiStruct, kw_only=True):
    """What was imported and when."""

    conditions: tuple[HeartbeatCondition, ...] = ()
    current_imports: tuple[ImportStatus, ...] = ()
    last_execution_timestamp: Time | None = None
    last_import_timestamp: Time | None = None
    last_imported_pvc: DataVolumeSourcePVC | None = field(default=None, name="lastImportedPVC")
    source_format: str | None = None
    """``pvc`` or ``snapshot``."""


class DataImportCron(ApiStruct, kw_only=True):
    """Content that is imported again whenever its source has changed."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataImportCronSpec, REQUIRED] = DataImportCronSpec()
    status: DataImportCronStatus = DataImportCronStatus()
