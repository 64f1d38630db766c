"""How large clones must be, and which sources are right for them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cdi_claims import STORAGE, claim, claim_document

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotContent
from virtplane.storage.cdi.controller.datavolume import clone_sizes, conditions
from virtplane.storage.cdi.controller.datavolume.clone_sizes import Sized
from virtplane.storage.cdi.rendering import Storage

GIB = 1 << 30
IMAGE = {"contentType": "kubevirt"}
_CONFIG = decode(CDIConfig, {"status": {"filesystemOverhead": {"global": "0.06"}}})
STORE = Storage(config=_CONFIG)


def _spec(size: str = "0", mode: str = "Filesystem") -> JsonObject:
    return {"volumeMode": mode, "resources": {"requests": {"storage": size}}, "storageClassName": "csi"}


def _source(mode: str = "Filesystem", **annotations: str) -> PersistentVolumeClaim:
    document = claim_document("src", mode=mode, annotations=annotations)
    document["status"]["capacity"] = {"storage": "2Gi"}
    return decode(PersistentVolumeClaim, document)


def _volume(what: str = "storage", **members: Any) -> DataVolume:
    size = members.pop("size", None)
    asked = {"resources": {"requests": {"storage": size}}} if size else {}
    return decode(DataVolume, {"metadata": {"name": "dv"}, "spec": {what: asked, **members}})


@pytest.mark.parametrize(
    ("spec", "source", "needed"),
    [
        (_spec(), _source(), True),
        (_spec("1Gi"), _source(**IMAGE), False),
        (_spec("1Gi", "Block"), _source(), False),
        (_spec("1Gi", "Block"), _source(**IMAGE), True),
        (_spec("1Gi", "Block"), _source("Block", **IMAGE), False),
    ],
)
def test_size_of_the_content_matters(spec: JsonObject, source: PersistentVolumeClaim, needed: bool) -> None:
    assert clone_sizes.needs_size(spec, source) is needed


def test_size_leaves_room_for_a_file_system() -> None:
    found = clone_sizes.sized(_spec(), _source(), GIB, STORE)
    assert found == Sized(_spec("1138166334"), is_permissive=True)
    assert clone_sizes.sized(_spec(mode="Block"), _source(), GIB, STORE).spec == _spec("1073741824", "Block")


def test_size_that_was_asked_for_stays_and_is_permissive_where_it_is_enough() -> None:
    assert clone_sizes.sized(_spec("1Gi", "Block"), _source(), GIB, STORE).is_permissive
    assert not clone_sizes.sized(_spec("1Gi", "Block"), _source(), GIB + 1, STORE).is_permissive


@pytest.mark.parametrize(
    ("size", "capacity", "known"),
    [
        ("1073741824", "2Gi", GIB),
        ("1073741824", "2147483648", GIB),
        ("1073741824", "3Gi", None),
        ("1073741824", "x", None),
        ("-1", "2Gi", None),
        ("0", "2Gi", None),
        ("9" * 30, "2Gi", None),
        ("１", "2Gi", None),  # noqa: RUF001 - not a digit of ASCII
    ],
)
def test_remembered_size_counts_while_the_capacity_is_the_same(
    size: str, capacity: str, known: int | None
) -> None:
    annotations = {"cdi.Kubervirt.io/virtualSize": size, "cdi.Kubervirt.io/sourceCapacity": capacity}
    assert clone_sizes.remembered_size(_source(**annotations)) == known


@pytest.mark.feature("STO-53")
@pytest.mark.parametrize(
    ("volume", "source", "problem"),
    [
        (_volume(), _source(), ""),
        (_volume(contentType="archive"), _source(), "do not match"),
        (_volume(size="512Mi"), _source(), ""),
        (_volume(size="512Mi"), _source("Block"), "smaller than the source 536870912 < 1073741824"),
        (_volume("pvc", size="512Mi"), _source(), "smaller"),
        (_volume("pvc"), _source(), "missing storage resource requests"),
    ],
)
def test_claims_that_may_be_cloned(volume: DataVolume, source: PersistentVolumeClaim, problem: str) -> None:
    found = clone_sizes.claim_problem(volume, source, STORE)
    assert problem in found
    assert bool(found) is bool(problem)


def _snapshot(**status: Any) -> VolumeSnapshot:
    spec = {"source": {"persistentVolumeClaimName": "x"}, "volumeSnapshotClassName": "snap"}
    return decode(VolumeSnapshot, {"metadata": {"name": "src"}, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("volume", "snapshot", "problem"),
    [
        (_volume(), _snapshot(restoreSize="1Gi"), ""),
        (_volume(), _snapshot(), "no status"),
        (_volume(), _snapshot(error={"message": "full"}), "error state with msg: full"),
        (_volume(), _snapshot(readyToUse=True), "no restore size"),
        (_volume(), _snapshot(restoreSize="0"), "size not specified"),
        (_volume(size="1Gi"), _snapshot(restoreSize="0"), ""),
        (_volume(size="1Gi"), _snapshot(restoreSize="2Gi"), "smaller"),
    ],
)
def test_snapshots_that_may_be_cloned(volume: DataVolume, snapshot: VolumeSnapshot, problem: str) -> None:
    found = clone_sizes.snapshot_problem(volume, snapshot, STORE)
    assert problem in found
    assert bool(found) is bool(problem)


def test_snapshot_of_a_device_needs_room_for_a_file_system() -> None:
    content = decode(VolumeSnapshotContent, {"spec": {"sourceVolumeMode": "Block", "driver": "d"}})
    snapshot = _snapshot(restoreSize="1Gi")
    assert clone_sizes.restored_size(_spec(), snapshot, content, STORE) == _spec("1138166334")
    assert clone_sizes.restored_size(_spec(), snapshot, None, STORE) == _spec("1Gi")
    assert clone_sizes.restored_size(_spec("5Gi"), snapshot, content, STORE) == _spec("5Gi")


@pytest.mark.parametrize(
    ("server", "sender", "said"),
    [
        ("true", "true", ("True", "a", "b")),
        ("true", "false", ("False", "c", "d")),
        ("false", "true", ("False", "a", "b")),
        ("false", "false", ("False", "a and c", "b and d")),
    ],
)
def test_copy_runs_while_both_pods_run(server: str, sender: str, said: tuple[str, str, str]) -> None:
    running = {"condition.running": server, "condition.running.reason": "a", "condition.running.message": "b"}
    source = {key.replace("running", "source.running", 1): text for key, text in running.items()}
    source |= {"condition.source.running": sender, "condition.source.running.reason": "c"}
    source |= {"condition.source.running.message": "d"}
    annotations = {STORAGE + key: text for key, text in {**running, **source}.items()}
    found = conditions.states("CloneInProgress", claim(annotations=annotations), uses_populator=False)[2]
    assert (found.status, found.reason, found.message) == said
