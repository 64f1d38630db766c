"""DataSources: names for content that DataVolumes are filled with."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourcePVC, DataVolumeSourceSnapshot
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct
from virtplane.api.meta_v1 import ObjectMeta


class DataSourceRefSource(ApiStruct, kw_only=True):
    """Another DataSource of the same namespace."""

    name: str
    namespace: str


class DataSourceSource(ApiStruct, kw_only=True):
    """What a DataSource stands for; exactly one member is set once there is content."""

    data_source: DataSourceRefSource | None = None
    pvc: DataVolumeSourcePVC | None = None
    snapshot: DataVolumeSourceSnapshot | None = None


class DataSourceSpec(ApiStruct, kw_only=True):
    """What a DataSource stands for."""

    source: Annotated[DataSourceSource, REQUIRED] = DataSourceSource()


class DataSourceStatus(ApiStruct, kw_only=True):
    """What it stands for in the end, and whether that can be used."""

    conditions: tuple[HeartbeatCondition, ...] = ()
    source: DataSourceSource = DataSourceSource()


class DataSource(ApiStruct, kw_only=True):
    """A name for content that DataVolumes are filled with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataSourceSpec, REQUIRED] = DataSourceSpec()
    status: DataSourceStatus = DataSourceStatus()
