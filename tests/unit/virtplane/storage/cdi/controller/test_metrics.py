"""The metrics that the alerts of CDI are about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from tests.support.managers import keep_running, working

from kubecore.json import JsonObject
from kubecore.resources import CSI_DRIVERS, STORAGE_CLASSES
from kubecore.runtime import Manager
from kubecore.runtime.metrics import collected
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.storage.cdi.controller.metrics import CRON_OUTDATED, PENDING, PROFILES, CdiMetrics
from virtplane.storage.cdi.controller.settings import Programs, Settings

_KINDS = [
    *(kinds.STORAGE_PROFILES, kinds.CDIS, kinds.CDI_CONFIGS, kinds.DATA_VOLUMES, kinds.DATA_IMPORT_CRONS),
    kinds.VOLUME_SNAPSHOT_CLASSES,
]
_FILE, _SHARED = (
    {"accessModes": [mode], "volumeMode": "Filesystem"} for mode in ("ReadWriteOnce", "ReadWriteMany")
)


@asynccontextmanager
async def _metrics(api: MemoryApi) -> AsyncIterator[CollectorRegistry]:
    registry = CollectorRegistry()
    manager = Manager(api.client())
    metrics = CdiMetrics(manager, Settings(manager, Programs("i", "c", "u")))
    keep_running(manager)
    async with working(manager):
        with collected(registry, metrics):
            yield registry
    assert list(registry.collect()) == []


def _class(
    api: MemoryApi, name: str, status: JsonObject, provisioner: str = "csi.example", **said: str
) -> None:
    metadata = {
        "name": name,
        "annotations": {key.replace("__", "/").replace("_", "-"): said[key] for key in said},
    }
    api.put(STORAGE_CLASSES, {"metadata": metadata, "provisioner": provisioner})
    status = {"provisioner": provisioner, "storageClass": name, **status}
    api.put(kinds.STORAGE_PROFILES, {"metadata": {"name": name}, "spec": {}, "status": status})


async def _told(api: MemoryApi, name: str) -> list[tuple[dict[str, str], float]]:
    async with _metrics(api) as registry:
        samples = [sample for metric in registry.collect() for sample in metric.samples]
    return [(dict(each.labels), each.value) for each in samples if each.name == name]


@pytest.mark.feature("MON-57", "STO-13")
async def test_profiles_say_what_their_classes_are_good_for() -> None:
    api = MemoryApi(_KINDS)
    api.put(CSI_DRIVERS, {"metadata": {"name": "csi.example"}, "spec": {}})
    snapshots = {"metadata": {"name": "s"}, "driver": "csi.example", "deletionPolicy": "Delete"}
    api.put(kinds.VOLUME_SNAPSHOT_CLASSES, snapshots)
    default = {"storageclass.kubernetes.io__is_default_class": "true"}
    _class(api, "a", {"claimPropertySets": [_SHARED], "cloneStrategy": "csi-clone"}, **default)
    _class(api, "b", {"claimPropertySets": [_FILE], "cloneStrategy": "snapshot"})
    _class(api, "c", {}, "other.example")
    _class(api, "d", {}, "kubernetes.io/no-provisioner")
    _class(api, "e", {"claimPropertySets": [_SHARED], "cloneStrategy": "copy"})
    found = {each["storageclass"]: (each, value) for each, value in await _told(api, PROFILES)}
    assert found["a"] == (
        {
            "storageclass": "a",
            "provisioner": "csi.example",
            "complete": "true",
            "default": "true",
            "virtdefault": "false",
            "rwx": "true",
            "smartclone": "true",
            "degraded": "false",
        },
        1,
    )
    keys = ("complete", "rwx", "smartclone", "degraded")
    assert {name: [each[key] for key in keys] for name, (each, _) in found.items() if name != "a"} == {
        "b": ["true", "false", "true", "true"],
        "c": ["false", "false", "false", "true"],
        "d": ["true", "false", "false", "true"],
        "e": ["true", "true", "false", "true"],
    }


@pytest.mark.feature("MON-54")
async def test_data_volumes_that_wait_for_a_default_class_are_counted() -> None:
    api = MemoryApi(_KINDS)
    waiting: JsonObject = {"storage": {}}
    for name, spec, phase in (
        ("a", waiting, ""),
        ("b", waiting, "Pending"),
        ("c", waiting, "Succeeded"),
        ("d", {"storage": {"storageClassName": "x"}}, "Pending"),
        ("e", {"pvc": {}}, "Pending"),
    ):
        document: JsonObject = {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": spec,
            "status": {"phase": phase},
        }
        api.put(kinds.DATA_VOLUMES, document)
    assert await _told(api, PENDING) == [({}, 3)]


@pytest.mark.feature("MON-50")
async def test_outdated_crons_are_told_apart_from_those_that_wait_for_a_class() -> None:
    api = MemoryApi(_KINDS)
    for name, status, template, said in (
        ("new", None, {}, {}),
        ("good", "True", {}, {}),
        ("old", "False", {"storageClassName": "x"}, {}),
        ("placed", "False", {}, {"cdi.kubevirt.io/storage.import.storageClass": "x"}),
        ("pending", "False", {}, {}),
    ):
        conditions = [] if status is None else [{"type": "UpToDate", "status": status}]
        spec = {
            "managedDataSource": "s",
            "schedule": "",
            "template": {"spec": {"source": {"registry": {"url": "docker://x"}}, "storage": template}},
        }
        metadata = {"name": name, "namespace": "ns", "annotations": said}
        document = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
        api.put(kinds.DATA_IMPORT_CRONS, document)
    found = {each["cron_name"]: (each["pending"], value) for each, value in await _told(api, CRON_OUTDATED)}
    assert found == {
        "good": ("false", 0),
        "old": ("false", 1),
        "placed": ("false", 1),
        "pending": ("true", 1),
    }
