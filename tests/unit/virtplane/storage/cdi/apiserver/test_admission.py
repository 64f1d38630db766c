"""What webhooks refuse, and in which words."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from kubecore import resources as core
from kubecore.client import Request
from kubecore.client import Response as HttpResponse
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from kubecore.testing import MemoryApi
from virtplane.api import resources
from virtplane.serving.responses import MOST_VALUES, Response
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.apiserver.requests import Services
from virtplane.storage.cdi.apiserver.reviews import review


class _Objects:
    """A cluster that has these objects, by resource, namespace and name."""

    def __init__(self, **found: JsonObject) -> None:
        self._found = found

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return self._found.get(f"{resource.plural}_{name}")

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return [each for key, each in self._found.items() if key.startswith(f"{resource.plural}_")]


async def _review(path: str, request: JsonObject, resource: ResourceType, **found: JsonObject) -> Response:
    named = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    services = Services(_Objects(**found), Authorizer(MemoryApi([]).client()), None, "cdi")
    return await review(path, {"resource": named, "namespace": "ns", "name": "x", **request}, services)


def _message(answer: Response) -> str:
    return str((answer.status or {}).get("message", ""))


_GIB = {"resources": {"requests": {"storage": "1Gi"}}}
_CLAIM = {"accessModes": ["ReadWriteOnce"], **_GIB}
_VDDK = {"url": "https://v", "secretRef": "s", "uuid": "u", "backingFile": "b", "thumbprint": "t"}


def _of(**source: Any) -> JsonObject:
    return {"source": source, "pvc": _CLAIM}


async def test_an_object_of_very_many_values_is_refused_at_once() -> None:
    spec = _of(blank={}) | {"checkpoints": [{}] * 900_000}
    request = {"operation": "CREATE", "object": {"metadata": {"name": "x", "namespace": "ns"}, "spec": spec}}
    begun = time.thread_time()
    answer = await _review("/datavolume-mutate", request, resources.DATA_VOLUMES)
    assert time.thread_time() - begun < 1.0, "meanwhile nobody else is answered"
    assert f"has more than {MOST_VALUES} values" in _message(answer)


@pytest.mark.feature("STO-44")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"source": {"blank": {}}}, " Missing Data volume PVC"),
        (
            {"source": {"blank": {}}, "pvc": _CLAIM, "storage": {}},
            " Duplicate storage definition, both target storage and target pvc defined",
        ),
        ({"source": {"blank": {}}, "storage": {}}, " Storage size is missing"),
        ({"source": {"pvc": {"name": "a", "namespace": "b"}}, "storage": {}}, ""),
        ({"sourceRef": {"kind": "DataSource", "name": "a"}, "storage": {}}, ""),
        (
            {"source": {"blank": {}}, "storage": {**_GIB, "storageClassName": "c" * 254}},
            " Name cannot be longer than 253 characters",
        ),
        ({"pvc": _CLAIM}, " Data volume should have either Source or SourceRef, or be externally populated"),
        (_of(), " Missing Data volume source"),
        (_of(blank={}, upload={}), " Multiple Data volume sources"),
        (_of(blank={}), ""),
        (_of(http={"url": ""}), " spec.source source URL is empty"),
        (_of(http={"url": "x"}), " spec.source Invalid source URL: x"),
        (_of(http={"url": "ftp://x"}), " spec.source Invalid source URL scheme: ftp://x"),
        (_of(http={"url": "http://x:port/"}), " spec.source Invalid source URL: http://x:port/"),
        (_of(http={"url": "http://x/%zz"}), " spec.source Invalid source URL: http://x/%zz"),
        (_of(gcs={"url": "gs://bucket/object"}), ""),
        (_of(s3={"url": "HTTPS://host/key?a=%zz"}), ""),
        (
            _of(http={"url": "", "checksum": "sha3:aa"}),
            " spec.source source URL is empty Invalid checksum format: unsupported hash algorithm 'sha3':"
            " supported algorithms are: md5, sha1, sha256, sha512",
        ),
        (
            _of(http={"url": "http://x", "checksum": "md5"}),
            " Invalid checksum format: invalid checksum format: expected 'algorithm:hash', got 'md5'",
        ),
        (_of(imageio={"url": "http://x", "diskId": ""}), " spec.source.Imageio source Imageio is not valid"),
        (
            _of(imageio={"url": "http://x", "diskId": "d", "secretRef": "s"}),
            " spec.source.Imageio source Imageio requires CertConfigMap or InsecureSkipVerify",
        ),
        (_of(imageio={"url": "http://x", "diskId": "d", "secretRef": "s", "insecureSkipVerify": True}), ""),
        (_of(vddk=_VDDK), ""),
        (_of(vddk={**_VDDK, "uuid": ""}), " spec.source.VDDK source VDDK is not valid"),
        (_of(registry={"url": "oci-archive:///a"}), ""),
        (_of(registry={"url": "docker://%zz"}), " Illegal registry source URL docker://%zz"),
        (_of(registry={"imageStream": "i", "pullMethod": "node"}), ""),
        (
            {"storage": {**_GIB, "dataSourceRef": {"kind": "Thing", "name": ""}}},
            " Required value: DataSourceRef name"
            " Required value: DataSourceRef apiGroup when kind is not 'PersistentVolumeClaim'",
        ),
    ],
)
async def test_data_volumes(spec: JsonObject, message: str) -> None:
    request = {"operation": "CREATE", "object": {"metadata": {"name": "x", "namespace": "ns"}, "spec": spec}}
    answer = await _review("/datavolume-validate", request, resources.DATA_VOLUMES)
    assert (_message(answer), answer.allowed) == (message, not message)


@pytest.mark.parametrize(
    ("annotations", "gates", "allowed"),
    [
        ({}, [], False),
        ({}, ["DataVolumeClaimAdoption"], True),
        ({"cdi.kubevirt.io/allowClaimAdoption": "true"}, [], True),
        ({"cdi.kubevirt.io/allowClaimAdoption": "false"}, ["DataVolumeClaimAdoption"], False),
    ],
)
async def test_a_claim_of_the_name_may_be_adopted(
    annotations: JsonObject, gates: list[str], allowed: bool
) -> None:
    metadata = {"name": "x", "namespace": "ns", "annotations": annotations}
    request = {"operation": "CREATE", "object": {"metadata": metadata, "spec": _of(blank={})}}
    answer = await _review(
        "/datavolume-validate",
        request,
        resources.DATA_VOLUMES,
        persistentvolumeclaims_x={"metadata": {"name": "x", "namespace": "ns"}},
        cdiconfigs_config={"spec": {"featureGates": gates}},
    )
    assert answer.allowed is allowed


async def _update(old: JsonObject, new: JsonObject) -> bool:
    request = {"operation": "UPDATE", "object": {"spec": new}, "oldObject": {"spec": old}}
    return (await _review("/datavolume-validate", request, resources.DATA_VOLUMES)).allowed


async def test_only_stages_may_be_added() -> None:
    staged = {**_of(vddk=_VDDK), "checkpoints": [{"previous": "", "current": "a"}]}
    assert await _update(staged, {**staged, "finalCheckpoint": True})
    assert await _update(staged, {**staged, "checkpoints": [{"previous": "a", "current": "b"}]})
    assert not await _update(staged, {**staged, "preallocation": True})
    assert not await _update(_of(blank={}), {**_of(blank={}), "finalCheckpoint": True})
    same = {**_CLAIM, "resources": {"requests": {"storage": "1024Mi"}}}
    assert await _update(_of(blank={}), {**_of(blank={}), "pvc": same}), "the amount is the same"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"source": {"http": {"url": 1}}},
            "json: cannot unmarshal number into Go struct field .spec.source.http.url of type string",
        ),
        (
            {"pvc": {"accessModes": "x"}},
            "json: cannot unmarshal string into Go struct field .spec.pvc.accessModes of type []string",
        ),
        (
            {"pvc": {"resources": {"requests": {"storage": "lots"}}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"checkpoints": [{"current": {}}]},
            "json: cannot unmarshal object into Go struct field .spec.checkpoints.current of type string",
        ),
    ],
)
async def test_values_of_the_wrong_type(document: JsonObject, message: str) -> None:
    request = {"operation": "CREATE", "object": {"spec": document}}
    for path in ("/datavolume-mutate", "/datavolume-validate"):
        assert _message(await _review(path, request, resources.DATA_VOLUMES)) == message


def _cron(**spec: Any) -> JsonObject:
    template = {"spec": {"source": {"registry": {"url": "docker://x"}}, "storage": _GIB}}
    return {"template": template, "schedule": "0 0 1 1 *", "managedDataSource": "ds", **spec}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_cron(), ""),
        (_cron(schedule=""), ""),
        (_cron(schedule="often"), " Illegal cron schedule"),
        (_cron(importsToKeep=-1), " Illegal ImportsToKeep value"),
        (_cron(garbageCollect="Always"), " Illegal GarbageCollect value"),
        (_cron(managedDataSource=""), " Illegal ManagedDataSource value"),
        (_cron(managedDataSource="d" * 64), " Name cannot be longer than 63 characters"),
    ],
)
async def test_crons(spec: JsonObject, message: str) -> None:
    request = {"operation": "CREATE", "object": {"metadata": {"name": "x"}, "spec": spec}}
    answer = await _review("/dataimportcron-validate", request, resources.DATA_IMPORT_CRONS)
    assert (_message(answer), answer.allowed) == (message, not message)


@pytest.mark.parametrize(
    ("user", "registry", "message"),
    [
        ("tenant", {"secretRef": "golden"}, "User tenant may not get secret golden in namespace cdi"),
        ("admin", {"secretRef": "golden"}, ""),
        ("tenant", {}, ""),
        ("tenant", {"secretRef": "golden", "pullMethod": "node"}, ""),
    ],
)
async def test_a_crons_author_may_read_the_secret_that_its_registry_is_sent(
    user: str, registry: JsonObject, message: str
) -> None:
    """The secret is in CDI's namespace, where administrators keep theirs."""
    api, asked = MemoryApi([]), []

    def decide(request: Request) -> HttpResponse | None:
        spec = orjson.loads(request.body or b"{}")["spec"]
        asked.append(spec["resourceAttributes"])
        status = {"status": {"allowed": spec["user"] == "admin"}}
        return HttpResponse(201, {"content-type": "application/json"}, orjson.dumps(status))

    api.reactions.append(decide)
    services = Services(_Objects(), Authorizer(api.client()), None, "cdi")
    spec = _cron()
    spec["template"]["spec"]["source"] = {"registry": {"url": "docker://registry.test/x", **registry}}
    kind = resources.DATA_IMPORT_CRONS
    request: JsonObject = {
        "operation": "CREATE",
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "namespace": "ns",
        "name": "x",
        "object": {"metadata": {"name": "x"}, "spec": spec},
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
    }
    answer = await review("/dataimportcron-validate", request, services)
    assert message in _message(answer) and answer.allowed is not bool(message)
    secret = {"group": "", "resource": "secrets", "verb": "get", "namespace": "cdi", "name": "golden"}
    assert asked == ([] if registry in ({},) or "pullMethod" in registry else [secret])


async def test_the_spec_of_a_cron_stays() -> None:
    request = {"operation": "UPDATE", "object": {"spec": _cron(schedule="")}, "oldObject": {"spec": _cron()}}
    answer = await _review("/dataimportcron-validate", request, resources.DATA_IMPORT_CRONS)
    assert _message(answer) == " Cannot update DataImportCron Spec"


async def test_empty_members_of_a_crons_template_may_appear() -> None:
    before = _cron()
    template = {**before["template"], "metadata": {}, "status": {}}
    request = {
        "operation": "UPDATE",
        "object": {"spec": {**before, "template": template}},
        "oldObject": {"spec": before},
    }
    answer = await _review("/dataimportcron-validate", request, resources.DATA_IMPORT_CRONS)
    assert answer.allowed


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("DataVolume", {}, "Target namespace and/or target name must be supplied"),
        ("Secret", {"name": "a"}, 'Unsupported kind "Secret"'),
        ("DataVolume", {"name": "taken"}, 'ObjectTransfer target "from/taken" already exists'),
        ("PersistentVolumeClaim", {"namespace": "to"}, ""),
    ],
)
async def test_transfers(source: str, target: JsonObject, message: str) -> None:
    spec = {"source": {"kind": source, "namespace": "from", "name": "n"}, "target": target}
    request = {"operation": "CREATE", "object": {"spec": spec}}
    answer = await _review(
        "/objecttransfer-validate",
        request,
        resources.OBJECT_TRANSFERS,
        datavolumes_taken={"kind": "DataVolume"},
    )
    assert _message(answer) == message
    warned = answer.warnings == ("ObjectTransfer feature is deprecated, and will be deleted soon",)
    assert warned is answer.allowed


@pytest.mark.parametrize(
    ("phase", "labels", "allowed"),
    [
        ("Deployed", {}, False),
        ("Deployed", {"cdi.kubevirt.io/dataImportCron": "c"}, True),
        ("Error", {}, True),
        ("", {}, True),
    ],
)
async def test_cdi_stays_while_there_are_data_volumes_to_keep(
    phase: str, labels: JsonObject, allowed: bool
) -> None:
    old = {"spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"}, "status": {"phase": phase}}
    answer = await _review(
        "/cdi-validate",
        {"operation": "DELETE", "oldObject": old},
        resources.CDIS,
        datavolumes_x={"metadata": {"labels": labels}},
    )
    assert answer.allowed is allowed
    if not allowed:
        assert "there are still 1 DataVolumes present" in _message(answer)


async def test_clones_wait_for_the_key_of_their_tokens() -> None:
    spec = {"source": {"pvc": {"name": "a", "namespace": "ns"}}, "storage": {}}
    answer = await _review(
        "/datavolume-mutate",
        {"operation": "CREATE", "object": {"metadata": {"name": "x"}, "spec": spec}},
        resources.DATA_VOLUMES,
        namespaces_ns={},
    )
    assert (answer.allowed, (answer.status or {})["code"]) == (False, 500)


async def test_a_clone_can_be_changed_when_the_namespace_of_its_source_is_gone() -> None:
    spec = {"source": {"pvc": {"name": "a", "namespace": "gone"}}, "storage": {}}
    old = {"metadata": {"name": "x"}, "spec": spec}
    new = {"metadata": {"name": "x", "labels": {"a": "b"}}, "spec": spec}
    created = await _review(
        "/datavolume-mutate", {"operation": "CREATE", "object": new}, resources.DATA_VOLUMES
    )
    changed = await _review(
        "/datavolume-mutate",
        {"operation": "UPDATE", "object": new, "oldObject": old},
        resources.DATA_VOLUMES,
    )
    assert (created.allowed, changed.allowed) == (False, True)


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        (None, "forged", {"op": "remove"}),
        ("own", "forged", {"op": "replace", "value": "own"}),
        ("own", "own", None),
        ("own", None, None),
    ],
)
async def test_a_data_volume_keeps_no_token_of_others(
    old: str | None, new: str | None, patch: JsonObject | None
) -> None:
    def data_volume(token: str | None) -> JsonObject:
        marks = {"cdi.kubevirt.io/storage.clone.token": token} if token else {}
        source = {"pvc": {"name": "a", "namespace": "ns"}}
        return {"metadata": {"name": "x", "annotations": marks}, "spec": {"source": source, "storage": {}}}

    request = {"operation": "UPDATE", "object": data_volume(new), "oldObject": data_volume(old)}
    answer = await _review("/datavolume-mutate", request, resources.DATA_VOLUMES, namespaces_ns={})
    path = "/metadata/annotations/cdi.kubevirt.io~1storage.clone.token"
    assert (answer.allowed, answer.patches) == (True, ({**patch, "path": path},) if patch else ())


@pytest.mark.parametrize("named", ["", "by-hand"])
async def test_a_claim_of_no_class_gets_the_modes_of_a_volume_made_by_hand(named: str) -> None:
    volume = {
        "metadata": {"name": "made"},
        "spec": {"storageClassName": named, "accessModes": ["ReadWriteMany"], "capacity": {"storage": "2Gi"}},
        "status": {"phase": "Available"},
    }
    claim = {
        "metadata": {"name": "x", "labels": {"cdi.kubevirt.io/applyStorageProfile": "true"}},
        "spec": {**_GIB, "storageClassName": named},
    }
    request = {"operation": "CREATE", "object": claim}
    path, kind = "/pvc-mutate", core.PERSISTENT_VOLUME_CLAIMS
    denied = await _review(path, request, kind)
    assert _message(denied) == "PVC spec is missing accessMode and no storageClass to choose profile"
    answer = await _review(path, request, kind, persistentvolumes_made=volume)
    assert answer.allowed, _message(answer)
    added = {each["path"]: each["value"] for each in answer.patches}
    assert added["/spec/accessModes"] == ["ReadWriteMany"]
    assert added["/spec/volumeMode"] == "Filesystem"


async def test_other_paths_and_resources_are_no_webhooks() -> None:
    assert (await _review("/other", {}, resources.DATA_VOLUMES)).allowed is False
    answer = await _review("/datavolume-validate", {"operation": "CREATE"}, resources.DATA_SOURCES)
    assert _message(answer) == "unexpected resource: datasources"


@pytest.mark.parametrize(
    ("kind", "path", "resource"),
    [
        ("DataVolume", "/datavolume-validate", resources.DATA_VOLUMES),
        ("VolumeImportSource", "/populator-validate", resources.VOLUME_IMPORT_SOURCES),
    ],
)
async def test_source_that_needs_what_the_image_lacks_is_warned_of(
    kind: str, path: str, resource: ResourceType
) -> None:
    spec = {"source": {"vddk": _VDDK}} | ({"pvc": _CLAIM} if kind == "DataVolume" else {})
    request = {"operation": "CREATE", "kind": {"kind": kind}, "object": {"spec": spec}}
    answer = await _review(path, request, resource)
    assert answer.allowed, _message(answer)
    says = "the import fails unless its image has the vddk plug-in of nbdkit, which ours has not"
    assert answer.warnings == (f"spec.source.vddk.url: {says}",)
