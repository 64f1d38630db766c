"""How a clone is made: the choice of the strategy, and why it is not the best one."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent
from virtplane.storage.cdi.clone_rights import SourceKind
from virtplane.storage.cdi.controller.clones import plans, strategy
from virtplane.storage.cdi.controller.clones.sources import CloneError, Source
from virtplane.storage.cdi.controller.clones.strategy import Choice, ClaimFacts, Facts, Refused


def _claim(name: str = "dv", **wanted: Any) -> PersistentVolumeClaim:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": wanted.get("size", "1Gi")}},
        "storageClassName": wanted.get("storage_class", "csi"),
        "volumeMode": wanted.get("mode", "Filesystem"),
        "volumeName": wanted.get("volume", ""),
    }
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    metadata["annotations"] = wanted.get("annotations", {})
    status = {"capacity": {"storage": wanted["capacity"]}} if "capacity" in wanted else {}
    return decode(PersistentVolumeClaim, {"metadata": metadata, "spec": spec, "status": status})


def _class(name: str, *, driver: str = "", grows: bool = False) -> StorageClass:
    document = {"metadata": {"name": name}, "provisioner": driver or f"{name}.example"}
    return decode(StorageClass, document | {"allowVolumeExpansion": grows})


def _profile(
    clone_strategy: str | None, snapshot_class: str | None = None, **metadata: Any
) -> StorageProfile:
    status = {"cloneStrategy": clone_strategy, "snapshotClass": snapshot_class}
    given = {key: value for key, value in status.items() if value}
    return decode(StorageProfile, {"metadata": {"name": "csi", **metadata}, "status": given})


def _snapshot_class(name: str, driver: str = "csi.example", *, default: bool = False) -> VolumeSnapshotClass:
    annotations = {"snapshot.storage.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": annotations}
    return decode(VolumeSnapshotClass, {"metadata": metadata, "driver": driver, "deletionPolicy": "Delete"})


def _facts(target: PersistentVolumeClaim, clone_strategy: str | None = "csi-clone", **members: Any) -> Facts:
    classes = [_class("csi", grows=members.pop("grows", False)), _class("other")]
    own = next(each for each in classes if each.metadata.name == target.spec.storage_class_name)
    profiles = {"csi": _profile(clone_strategy), "other": _profile(clone_strategy)}
    return Facts(target, own, members.pop("profiles", profiles), classes, **members)


SOURCE = _claim("src", capacity="2Gi")


@pytest.mark.feature("STO-20")
@pytest.mark.parametrize("wanted", ["csi-clone", "copy"])
def test_profile_says_the_strategy(wanted: str) -> None:
    assert strategy.for_claim(_facts(_claim(), wanted), ClaimFacts(SOURCE)) == Choice(wanted)


@pytest.mark.feature("STO-20")
def test_installation_overrides_the_profile() -> None:
    facts = _facts(_claim(), "csi-clone", override="copy")
    assert strategy.for_claim(facts, ClaimFacts(SOURCE)) == Choice("copy")


@pytest.mark.feature("STO-24")
@pytest.mark.feature("STO-25")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (_claim(storage_class="other"), strategy.OTHER_PROVISIONER),
        (_claim(mode="Block"), strategy.OTHER_MODE),
        (_claim(size="3Gi"), strategy.NO_EXPANSION),
    ],
)
def test_pods_copy_what_drivers_cannot_clone(target: PersistentVolumeClaim, reason: strategy.Notice) -> None:
    choice = strategy.for_claim(_facts(target), ClaimFacts(SOURCE))
    assert choice == Choice("copy", reason.message, (reason,))


def test_class_that_can_grow_volumes_clones_into_larger_ones() -> None:
    assert (
        strategy.for_claim(_facts(_claim(size="3Gi"), grows=True), ClaimFacts(SOURCE)).strategy == "csi-clone"
    )


@pytest.mark.feature("STO-22")
def test_snapshots_need_a_class_of_the_driver() -> None:
    facts = _facts(_claim(), "snapshot", snapshot_classes=[_snapshot_class("x", "x.example")])
    choice = strategy.for_claim(facts, ClaimFacts(SOURCE))
    assert choice == Choice("copy", strategy.NO_SNAPSHOT_CLASS.message, (strategy.NO_SNAPSHOT_CLASS,))


@pytest.mark.feature("STO-22")
@pytest.mark.parametrize(
    ("classes", "agreed", "text"),
    [
        ([_snapshot_class("b"), _snapshot_class("a")], None, "First VolumeSnapshotClass selected a"),
        (
            [_snapshot_class("a"), _snapshot_class("b", default=True)],
            None,
            "Default VolumeSnapshotClass selected b",
        ),
        (
            [_snapshot_class("a", default=True), _snapshot_class("b")],
            "b",
            "VolumeSnapshotClass selected according to StorageProfile b",
        ),
    ],
)
def test_class_of_snapshots(classes: list[VolumeSnapshotClass], agreed: str | None, text: str) -> None:
    profiles = {"csi": _profile("snapshot", agreed)}
    facts = _facts(_claim(), snapshot_classes=classes, profiles=profiles)
    choice = strategy.for_claim(facts, ClaimFacts(SOURCE))
    assert choice.strategy == "snapshot"
    (notice,) = choice.notices
    assert notice.message == text
    assert strategy.selected_name(notice) == text.rsplit(maxsplit=1)[-1]


def test_class_of_the_profile_that_is_another_drivers_is_not_used() -> None:
    profiles = {"csi": _profile("snapshot", "x")}
    classes = [_snapshot_class("x", "x.example"), _snapshot_class("a")]
    facts = _facts(_claim(), snapshot_classes=classes, profiles=profiles)
    assert strategy.for_claim(facts, ClaimFacts(SOURCE)).reason == strategy.NO_SNAPSHOT_CLASS.message


def test_smaller_target_is_refused_unless_it_says_that_this_is_right() -> None:
    large = _claim("src", size="2Gi", capacity="2Gi")
    with pytest.raises(Refused, match="is smaller than the source 1073741824 < 2147483648") as raised:
        strategy.for_claim(_facts(_claim()), ClaimFacts(large))
    assert [each.reason for each in raised.value.notices] == ["ErrIncompatiblePVC", "CloneValidationFailed"]
    permissive = _claim(annotations={"cdi.kubevirt.io/permissiveClone": ""})
    assert strategy.for_claim(_facts(permissive), ClaimFacts(large)).strategy == "csi-clone"


def test_smallest_size_of_the_class_counts() -> None:
    large = _claim("src", size="2Gi", capacity="2Gi")
    annotations = {"cdi.kubevirt.io/minimumSupportedPvcSize": "4Gi"}
    profiles = {"csi": _profile("csi-clone", annotations=annotations)}
    assert strategy.for_claim(_facts(_claim(), profiles=profiles), ClaimFacts(large)).strategy == "csi-clone"


def test_driver_is_that_of_the_volume_not_of_the_class() -> None:
    source = _claim("src", capacity="2Gi", volume="pv", storage_class="other")
    reference = {"name": "src", "namespace": "ns"}
    spec = {"claimRef": reference, "csi": {"driver": "csi.example", "volumeHandle": "h"}}
    volume = decode(PersistentVolume, {"metadata": {"name": "pv"}, "spec": spec})
    assert strategy.for_claim(_facts(_claim()), ClaimFacts(source, {"pv": volume})).strategy == "csi-clone"
    foreign = decode(
        PersistentVolume,
        {"metadata": {"name": "pv"}, "spec": {**spec, "claimRef": {"name": "x", "namespace": "theirs"}}},
    )
    with pytest.raises(Refused, match="does not match"):
        strategy.for_claim(_facts(_claim()), ClaimFacts(source, {"pv": foreign}))


def _snapshot(size: str | None = "1Gi") -> VolumeSnapshot:
    status = {"readyToUse": True, "restoreSize": size} if size else {"readyToUse": True}
    return decode(VolumeSnapshot, {"metadata": {"name": "src", "namespace": "ns"}, "status": status})


def _content(driver: str = "csi.example", mode: str | None = "Filesystem") -> VolumeSnapshotContent:
    spec = {"driver": driver, "deletionPolicy": "Delete", **({"sourceVolumeMode": mode} if mode else {})}
    return decode(VolumeSnapshotContent, {"metadata": {"name": "c"}, "spec": spec})


@pytest.mark.parametrize(
    ("target", "content", "reason"),
    [
        (_claim(), _content(), ""),
        (_claim(), _content("x.example"), strategy.OTHER_DRIVER.message),
        (_claim(size="2Gi"), _content(), strategy.NO_EXPANSION.message),
        (_claim(), _content(mode="Block"), strategy.OTHER_MODE.message),
        (_claim(mode="Block"), _content(mode=None), strategy.OTHER_MODE.message),
    ],
)
def test_snapshot_is_restored_where_driver_mode_and_size_allow_it(
    target: PersistentVolumeClaim, content: VolumeSnapshotContent, reason: str
) -> None:
    choice = strategy.for_snapshot(_facts(target), _snapshot(), content)
    assert (choice.strategy, choice.reason) == ("copy" if reason else "snapshot", reason)


def test_snapshot_without_size_is_refused() -> None:
    with pytest.raises(Refused, match="RestoreSize"):
        strategy.for_snapshot(_facts(_claim()), _snapshot(None), _content())


@pytest.mark.feature("STO-21")
@pytest.mark.feature("STO-22")
@pytest.mark.feature("STO-23")
@pytest.mark.parametrize(
    ("wanted", "kind", "phases"),
    [
        ("copy", SourceKind.CLAIM, ["HostClone", "Rebind"]),
        ("snapshot", SourceKind.CLAIM, ["Snapshot", "SnapshotClone", "PrepClaim", "Rebind"]),
        ("csi-clone", SourceKind.CLAIM, ["CSIClone", "PrepClaim", "Rebind"]),
        ("snapshot", SourceKind.SNAPSHOT, ["SnapshotClone", "PrepClaim", "Rebind"]),
        ("copy", SourceKind.SNAPSHOT, ["SnapshotClone", "PrepClaim", "HostClone", "Rebind"]),
    ],
)
def test_phases(wanted: str, kind: SourceKind, phases: list[str]) -> None:
    restored = plans.Restored(_snapshot(), "csi", "Block") if kind is SourceKind.SNAPSHOT else None
    found = plans.plan(wanted, Source(kind, "ns", "src"), _claim(), restored)
    assert [each.name for each in found] == phases


@pytest.mark.parametrize("wanted", ["csi-clone", "x"])
def test_strategy_that_no_snapshot_knows_is_an_error(wanted: str) -> None:
    with pytest.raises(CloneError, match="unknown strategy"):
        plans.plan(wanted, Source(SourceKind.SNAPSHOT, "ns", "src"), _claim())


def test_only_what_is_listed_is_passed_on_to_the_namespace_of_the_source() -> None:
    storage = "cdi.kubevirt.io/storage."
    given = {
        f"{storage}import.endpoint": "http://evil.example",
        f"{storage}import.secretName": "theirs",
        f"{storage}upload.target": "",
        f"{storage}pod.serviceAccountName": "admin",
        "k8s.v1.cni.cncf.io/networks": "theirs",
        f"{storage}contentType": "kubevirt",
    }
    target = _claim(annotations=given)
    (phase, *_) = plans.plan("csi-clone", Source(SourceKind.CLAIM, "images", "src"), target)
    assert isinstance(phase, plans.CloneByDriver)
    metadata = phase.claim["metadata"]
    assert metadata["namespace"] == "images"
    assert set(metadata["annotations"]) & set(given) == {f"{storage}contentType"}
    (phase, *_) = plans.plan("csi-clone", Source(SourceKind.CLAIM, "ns", "src"), target)
    assert isinstance(phase, plans.CloneByDriver)
    at_home = set(phase.claim["metadata"]["annotations"]) & set(given)
    assert at_home == {*list(given)[3:]}
