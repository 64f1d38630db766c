"""From what a DataVolume asks for to the spec of its claim."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolume, StorageClass
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.rendering import NoStorageClass, RenderingError, Storage

_OLD, _NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
_VIRT = "storageclass.kubevirt.io/is-default-virt-class"
_CLUSTER = "storageclass.kubernetes.io/is-default-class"
_GIB = 1024**3


def _class(name: str, *defaults: str, created: str = _OLD) -> StorageClass:
    metadata = {
        "name": name,
        "annotations": dict.fromkeys(defaults, "true"),
        "creationTimestamp": created,
    }
    return decode(StorageClass, {"metadata": metadata, "provisioner": "test"})


def _profile(name: str, *sets: tuple[list[str], str], minimum: str = "") -> StorageProfile:
    annotations = {"cdi.kubevirt.io/minimumSupportedPvcSize": minimum} if minimum else {}
    found = [{"accessModes": modes, "volumeMode": mode} for modes, mode in sets]
    status = {"claimPropertySets": found}
    return decode(
        StorageProfile, {"metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": status}
    )


def _config(overhead: str = "0.06", **classes: str) -> CDIConfig:
    known = {"global": overhead, "storageClass": classes}
    return decode(CDIConfig, {"spec": {}, "status": {"filesystemOverhead": known}})


_RWX_BLOCK, _RWO_FILES = (["ReadWriteMany"], "Block"), (["ReadWriteOnce"], "Filesystem")
_STORAGE = Storage(
    classes=[_class("sc")],
    profiles={"sc": _profile("sc", _RWX_BLOCK, _RWO_FILES)},
    config=_config(),
)


def _asked(size: str = "10Gi", **members: object) -> JsonObject:
    claim = {"resources": {"requests": {"storage": size}}, "storageClassName": "sc", **members}
    return {"source": {"blank": {}}, "storage": claim}


def _size(claim: JsonObject) -> str:
    return str(claim["resources"]["requests"]["storage"])


def test_what_is_asked_for_in_pvc_is_taken_as_it_is() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5"}}, "unknown": 1}
    assert rendering.render_data_volume({"pvc": claim}, _STORAGE) == claim


def test_one_of_pvc_and_storage_is_needed() -> None:
    with pytest.raises(RenderingError, match="field is required"):
        rendering.render_data_volume({"source": {}}, _STORAGE)


@pytest.mark.feature("STO-14", "VMC-51")
@pytest.mark.parametrize(
    ("asked", "modes", "volume_mode"),
    [
        ({}, ["ReadWriteMany"], "Block"),
        ({"volumeMode": "Filesystem"}, ["ReadWriteOnce"], "Filesystem"),
        ({"accessModes": ["ReadWriteOnce"]}, ["ReadWriteOnce"], "Filesystem"),
        ({"accessModes": ["ReadOnlyMany"]}, ["ReadOnlyMany"], None),
        ({"accessModes": ["ReadOnlyMany"], "volumeMode": "Block"}, ["ReadOnlyMany"], "Block"),
    ],
)
def test_the_profile_fills_the_modes_in(asked: JsonObject, modes: list[str], volume_mode: str | None) -> None:
    claim = rendering.render_data_volume(_asked(**asked), _STORAGE)
    assert (claim["accessModes"], claim.get("volumeMode")) == (modes, volume_mode)


@pytest.mark.parametrize(
    ("asked", "profile", "message", "event"),
    [
        (
            {},
            _profile("sc"),
            "no accessMode specified in StorageProfile sc",
            "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile sc",
        ),
        (
            {"volumeMode": "Filesystem"},
            _profile("sc", _RWX_BLOCK),
            "no matching accessMode specified in StorageProfile sc",
            "Spec is missing accessMode and cannot get access mode from StorageProfile sc",
        ),
        (
            {},
            None,
            'cannot get StorageProfile: storageprofiles.cdi.kubevirt.io "sc" not found',
            "Spec is missing accessMode and volumeMode, cannot get access mode from StorageProfile sc",
        ),
    ],
)
def test_a_profile_that_does_not_help_is_named(
    asked: JsonObject, profile: StorageProfile | None, message: str, event: str
) -> None:
    storage = Storage([_class("sc")], {"sc": profile} if profile else {}, _config())
    with pytest.raises(RenderingError) as raised:
        rendering.render_data_volume(_asked(**asked), storage)
    assert (str(raised.value), raised.value.event) == (message, event)


@pytest.mark.parametrize(
    ("size", "overhead", "bytes_"),
    [
        ("10Gi", "0.06", 11381663335),
        ("1Gi", "0.055", 1132797625),
        ("1048577", "0", 2 * 1024**2),
        ("1Gi", "0", _GIB),
        ("1Gi", "nonsense", _GIB),
    ],
)
def test_file_systems_get_room_of_their_own(size: str, overhead: str, bytes_: int) -> None:
    storage = Storage([_class("sc")], _STORAGE.profiles, _config(overhead))
    claim = rendering.render_data_volume(_asked(size, volumeMode="Filesystem"), storage)
    assert _size(claim) == str(bytes_)


def test_devices_need_no_room_beside_the_image() -> None:
    assert _size(rendering.render_data_volume(_asked("10Gi", volumeMode="Block"), _STORAGE)) == str(10 * _GIB)


def test_a_class_may_have_an_overhead_of_its_own() -> None:
    storage = Storage([_class("sc")], _STORAGE.profiles, _config("0.5", sc="0.1"))
    claim = rendering.render_data_volume(_asked("10Mi", volumeMode="Filesystem"), storage)
    assert _size(claim) == str(11 * 1024**2)


def test_what_is_smaller_than_the_class_can_make_grows() -> None:
    storage = Storage([_class("sc")], {"sc": _profile("sc", _RWX_BLOCK, minimum="4Gi")}, _config())
    assert _size(rendering.render_data_volume(_asked("1Gi"), storage)) == "4Gi"
    assert _size(rendering.render_data_volume(_asked("5Gi"), storage)) == str(5 * _GIB)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"source": {"blank": {}}, "storage": {"storageClassName": "sc"}},
            "PVC Spec is not valid - missing storage size",
        ),
        (_asked("1000Ki"), "PVC Spec is not valid - storage size should be at least 1MiB"),
    ],
)
def test_sizes_that_cannot_be(spec: JsonObject, message: str) -> None:
    with pytest.raises(RenderingError, match=message) as raised:
        rendering.render_data_volume(spec, _STORAGE)
    assert raised.value.event == ""


@pytest.mark.parametrize("kind", ["pvc", "snapshot"])
def test_clones_may_ask_for_no_size(kind: str) -> None:
    source = {kind: {"name": "a", "namespace": "b"}}
    claim = rendering.render_data_volume(
        {"source": source, "storage": {}}, Storage([_class("sc", _CLUSTER)], _STORAGE.profiles, _config())
    )
    assert _size(claim) == "0"


def test_archives_are_kept_in_file_systems() -> None:
    claim = rendering.render_data_volume({**_asked(), "contentType": "archive"}, _STORAGE)
    assert claim["volumeMode"] == "Filesystem"
    with pytest.raises(RenderingError, match="ContentType Archive cannot have block volumeMode") as raised:
        rendering.render_data_volume({**_asked(volumeMode="Block"), "contentType": "archive"}, _STORAGE)
    assert raised.value.event == "ContentType Archive cannot have block volumeMode"


@pytest.mark.feature("STO-04", "STO-05")
@pytest.mark.parametrize(
    ("classes", "content", "name"),
    [
        ([_class("a", _CLUSTER), _class("b", _VIRT)], "kubevirt", "b"),
        ([_class("a", _CLUSTER), _class("b", _VIRT)], "archive", "a"),
        ([_class("a", _CLUSTER), _class("b")], "kubevirt", "a"),
        ([_class("a", _CLUSTER), _class("b", _CLUSTER, created=_NEW)], "kubevirt", "b"),
        ([_class("b", _CLUSTER), _class("a", _CLUSTER)], "kubevirt", "a"),
        ([_class("b")], "kubevirt", None),
    ],
)
def test_the_default_class(classes: list[StorageClass], content: str, name: str | None) -> None:
    found = rendering.default_class(classes, content)
    assert (found.metadata.name if found else None) == name


def _volume(name: str, phase: str = "Available", size: str = "20Gi") -> PersistentVolume:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": size},
        "storageClassName": "static",
        "volumeMode": "Filesystem",
    }
    return decode(PersistentVolume, {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}})


def test_a_volume_of_a_class_that_does_not_exist_gives_the_modes() -> None:
    asked = _asked(storageClassName="static")
    fit = Storage(volumes=[_volume("bound", "Bound"), _volume("small", size="1Gi"), _volume("fit")])
    claim = rendering.render_data_volume(asked, fit)
    assert (claim["accessModes"], claim["volumeMode"]) == (["ReadWriteMany"], "Filesystem")


@pytest.mark.parametrize("volumes", [[], [_volume("bound", "Bound")], [_volume("small", size="1Gi")]])
def test_without_class_profile_and_volume_a_claim_must_wait(volumes: list[PersistentVolume]) -> None:
    text = "PVC spec is missing accessMode and no storageClass to choose profile"
    with pytest.raises(NoStorageClass, match=text) as raised:
        rendering.render_data_volume(_asked(storageClassName="static"), Storage(volumes=volumes))
    assert raised.value.event == text


def test_modes_that_are_asked_for_need_no_class() -> None:
    asked = _asked(storageClassName="none", accessModes=["ReadWriteOnce"], volumeMode="Block")
    assert rendering.render_data_volume(asked, Storage())["accessModes"] == ["ReadWriteOnce"]


def test_claims_are_left_to_the_webhook_only_where_it_is_on() -> None:
    labels = {"cdi.kubevirt.io/applyStorageProfile": "true"}
    off = decode(CDIConfig, {"spec": {"webhookPvcRendering": "Disabled"}})
    assert rendering.is_left_to_webhook(labels, _config())
    assert not rendering.is_left_to_webhook({}, _config())
    assert not rendering.is_left_to_webhook(labels, off)
    assert not rendering.is_left_to_webhook(labels, None)


def test_what_is_asked_for_is_not_changed() -> None:
    asked = _asked()
    rendering.render_data_volume(asked, _STORAGE)
    assert asked == _asked()
