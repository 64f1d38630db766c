"""DataSources: names for content that DataVolumes are filled with."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourcePVC, DataVolumeSourceSnapshot
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.markers import REQUIRED, ApiStruct, describe
from virtplane.api.meta_v1 import ObjectMeta


class DataSourceRefSource(ApiStruct, kw_only=True):
    """Another DataSource of the same namespace."""

    name: Annotated[str, describe("Name of the DataSource.")]
    namespace: Annotated[str, describe("Namespace of the DataSource: that of this one.")]


class DataSourceSource(ApiStruct, kw_only=True):
    """What a DataSource stands for; exactly one member is set once there is content."""

    data_source: Annotated[
        DataSourceRefSource | None, describe("Another DataSource, which must not stand for a third.")
    ] = None
    pvc: DataVolumeSourcePVC | None = None
    snapshot: DataVolumeSourceSnapshot | None = None


class DataSourceSpec(ApiStruct, kw_only=True):
    """What the DataSource stands for."""

    source: Annotated[DataSourceSource, REQUIRED] = DataSourceSource()


class DataSourceStatus(ApiStruct, kw_only=True):
    """What it stands for in the end, and whether that can be used. cdi-deployment writes it."""

    conditions: Annotated[
        tuple[HeartbeatCondition, ...], describe("Ready: whether DataVolumes can be filled from it.")
    ] = ()
    source: Annotated[DataSourceSource, describe("The claim or snapshot that it leads to.")] = (
        DataSourceSource()
    )


class DataSource(ApiStruct, kw_only=True):
    """A name for content that DataVolumes are filled with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[DataSourceSpec, REQUIRED] = DataSourceSpec()
    status: DataSourceStatus = DataSourceStatus()
