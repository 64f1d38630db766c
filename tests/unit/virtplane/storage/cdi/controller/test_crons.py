"""DataImportCrons: what is imported, what the DataSource leads to, what stays."""

from __future__ import annotations

import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.cdi.controller.crons import (
    DIGEST,
    IMPORT,
    NAMESPACE,
    OTHER,
    OTHER_IMPORT,
    Cluster,
    cluster,
    put,
)

from kubecore.client import Request
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import EVENTS, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds

pytestmark = pytest.mark.feature("VMC-02")


async def test_a_new_digest_is_imported_and_becomes_the_source() -> None:
    async with cluster() as here:
        here.cron()
        await until(lambda: here.reasons() == {"Progressing": "NoImport", "UpToDate": "NoDigest"})
        assert here.content() == {}
        here.digest()
        made = await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        url = made["spec"]["source"]["registry"]["url"]
        assert url == f"docker://registry.example/image@{DIGEST}"
        here.phase(IMPORT, "ImportInProgress")
        await until(lambda: here.reasons() == dict.fromkeys(("Progressing", "UpToDate"), "ImportProgressing"))
        here.fill(IMPORT)
        await until(lambda: here.reasons() == {"Progressing": "NoImport", "UpToDate": "UpToDate"})
        status = here.get(kinds.DATA_IMPORT_CRONS, "cron")["status"]
        assert status["lastImportedPVC"] == {"name": IMPORT, "namespace": NAMESPACE}
        assert status["currentImports"] == [{"DataVolumeName": IMPORT, "Digest": DIGEST}]
        assert (status["sourceFormat"], status["lastExecutionTimestamp"]) == ("pvc", "2026-01-02T03:04:05Z")
        assert here.content() == {"pvc": {"name": IMPORT, "namespace": NAMESPACE}}


async def test_what_is_no_digest_is_not_imported() -> None:
    async with cluster() as here:
        here.cron()
        here.digest("sha256:../../../etc")
        await until(lambda: here.reasons().get("UpToDate") == "NoDigest")
        assert here.api.list(kinds.DATA_VOLUMES) == []


async def test_the_source_in_use_stays_until_the_next_one_is_there() -> None:
    async with cluster() as here:
        here.cron(importsToKeep=1)
        await here.imported()
        here.digest(OTHER)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        here.phase(OTHER_IMPORT, "ImportInProgress")
        await until(lambda: here.reasons().get("Progressing") == "ImportProgressing")
        assert here.content()["pvc"]["name"] == IMPORT
        here.fill(OTHER_IMPORT)
        await here.gone(kinds.DATA_VOLUMES, IMPORT)
        assert here.content()["pvc"]["name"] == OTHER_IMPORT


def _verdict(here: Cluster) -> tuple[JsonObject, str]:
    """What the status of the DataSource leads to, and whether it can be used."""
    shown = here.get(kinds.DATA_SOURCES, "ds")["status"]
    (ready,) = (each["status"] for each in shown["conditions"] if each["type"] == "Ready")
    return shown["source"], ready


async def test_no_moment_shows_a_source_with_the_condition_of_the_one_before() -> None:
    async with cluster() as here:
        here.cron(importsToKeep=2)
        await here.imported()
        here.digest(OTHER)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        here.fill(OTHER_IMPORT)
        # Nobody but the cron's controller works here.
        await until(lambda: here.content()["pvc"]["name"] == OTHER_IMPORT)
        assert _verdict(here) == (here.content(), "True")


async def test_a_source_leads_to_a_claim_that_is_known() -> None:
    """The news of a DataVolume that is filled may come before those of its claim."""
    async with cluster() as here:
        here.cron(importsToKeep=2)
        await here.imported()
        here.digest(OTHER)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        here.phase(OTHER_IMPORT, "Succeeded")
        await until(lambda: here.reasons() == {"Progressing": "NoImport", "UpToDate": "UpToDate"})
        assert here.content()["pvc"]["name"] == IMPORT
        here.fill(OTHER_IMPORT)
        await until(lambda: here.content()["pvc"]["name"] == OTHER_IMPORT)


async def test_an_outdated_import_stays_while_a_data_source_beside_it_leads_to_it() -> None:
    async with cluster() as here:
        here.cron(importsToKeep=1)
        await here.imported()
        mine = {"pvc": {"name": IMPORT, "namespace": NAMESPACE}}
        put(here.api, kinds.DATA_SOURCES, "mine", spec={"source": mine})
        await here.imported(OTHER, OTHER_IMPORT)
        third = "ds-" + "c" * 12
        await here.imported("sha256:" + "c" * 64, third)
        await here.gone(kinds.DATA_VOLUMES, OTHER_IMPORT)
        await here.imported("sha256:" + "d" * 64, "ds-" + "d" * 12)
        await here.gone(kinds.DATA_VOLUMES, third)
        assert here.get(kinds.DATA_VOLUMES, IMPORT)


async def test_a_data_source_of_another_namespace_keeps_no_outdated_import() -> None:
    async with cluster() as here:
        here.cron(importsToKeep=1)
        await here.imported()
        theirs = {"pvc": {"name": IMPORT, "namespace": NAMESPACE}}
        put(here.api, kinds.DATA_SOURCES, "theirs", "elsewhere", spec={"source": theirs})
        await here.imported(OTHER, OTHER_IMPORT)
        await here.gone(kinds.DATA_VOLUMES, IMPORT)


@pytest.mark.parametrize("label", ["", "cron"])
async def test_an_import_whose_claim_is_no_longer_the_crons_goes_beyond_those_to_keep(label: str) -> None:
    async with cluster() as here:
        put(
            here.api,
            kinds.DATA_VOLUMES,
            "old",
            labels={names.CRON: "cron"},
            annotations={names.LAST_USE_TIME: "2020-01-02T03:04:05Z"},
            spec={},
        )
        here.fill("old", **{names.CRON: label})
        here.cron(importsToKeep=1 if not label else 2)
        await here.imported()
        if label:
            await here.imported(OTHER, OTHER_IMPORT)
        await here.gone(kinds.DATA_VOLUMES, "old")
        assert here.get(kinds.DATA_VOLUMES, IMPORT)


async def test_nothing_is_collected_where_that_is_not_wanted() -> None:
    async with cluster() as here:
        here.cron(importsToKeep=1, garbageCollect="Never")
        await here.imported()
        await here.imported(OTHER, OTHER_IMPORT)
        assert here.get(kinds.DATA_VOLUMES, IMPORT)


async def test_an_earlier_digest_uses_what_is_there() -> None:
    async with cluster() as here:
        here.cron()
        await here.imported()
        first = here.get(kinds.DATA_VOLUMES, IMPORT)["metadata"]["uid"]
        await here.imported(OTHER, OTHER_IMPORT)
        here.digest(DIGEST)
        await until(lambda: here.content()["pvc"]["name"] == IMPORT)
        assert here.get(kinds.DATA_VOLUMES, IMPORT)["metadata"]["uid"] == first


async def test_a_deletion_that_takes_effect_late_does_not_meet_content_in_use() -> None:
    async with cluster() as here:
        late: list[Request] = []

        def lose(request: Request) -> StatusError | None:
            if request.method != "DELETE" or not request.path.endswith(IMPORT):
                return None
            late.append(request)
            return StatusError(503, "ServiceUnavailable", "lost")

        here.api.reactions.append(lose)
        here.cron(importsToKeep=1)
        await here.imported()
        await here.imported(OTHER, OTHER_IMPORT)
        await until(lambda: late)
        here.digest(DIGEST)
        await until(lambda: here.content()["pvc"]["name"] == IMPORT)
        here.api.reactions.remove(lose)
        assert here.api.handle(late[0]).status == 409
        assert here.get(kinds.DATA_VOLUMES, IMPORT)


async def test_nothing_goes_before_the_server_has_said_that_the_cron_is_not_out_of_date() -> None:
    async with cluster() as here:
        asked: list[Request] = []

        def hide(request: Request) -> StatusError | None:
            if request.method != "GET" or not request.path.endswith("/dataimportcrons/cron"):
                return None
            asked.append(request)
            return StatusError(503, "ServiceUnavailable", "lost")

        here.cron(importsToKeep=1)
        await here.imported()
        here.digest(OTHER)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        here.api.reactions.append(hide)
        here.fill(OTHER_IMPORT)
        await until(lambda: here.content()["pvc"]["name"] == OTHER_IMPORT and len(asked) > 1)
        assert here.get(kinds.DATA_VOLUMES, IMPORT)
        here.api.reactions.remove(hide)
        await here.gone(kinds.DATA_VOLUMES, IMPORT)


async def test_an_import_that_failed_makes_room_for_a_newer_digest() -> None:
    async with cluster() as here:
        here.cron()
        here.digest()
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        await until(lambda: here.reasons().get("UpToDate") == "ImportProgressing")
        failed = {"type": "Running", "status": "False", "reason": "ImagePullFailed"}
        here.phase(IMPORT, "ImportInProgress", conditions=[failed])
        here.digest(OTHER)
        await here.gone(kinds.DATA_VOLUMES, IMPORT)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))


async def test_a_half_filled_claim_is_no_source() -> None:
    async with cluster() as here:
        here.cron()
        here.digest()
        made = await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        here.fill(IMPORT)
        await until(here.content)
        # Somebody deletes the DataVolume of the next import while its claim is being filled.
        here.digest(OTHER)
        await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        here.fill(OTHER_IMPORT)
        here.phase(OTHER_IMPORT, "ImportInProgress")
        first = here.get(kinds.DATA_VOLUMES, OTHER_IMPORT)["metadata"]["uid"]
        here.api.remove(kinds.DATA_VOLUMES, OTHER_IMPORT, NAMESPACE)
        again = await until(lambda: here.get(kinds.DATA_VOLUMES, OTHER_IMPORT))
        assert again["metadata"]["uid"] != first
        assert here.content()["pvc"]["name"] == made["metadata"]["name"]


@pytest.mark.feature("STO-38")
async def test_sources_may_be_kept_as_snapshots() -> None:
    async with cluster() as here:
        profile = {"dataImportCronSourceFormat": "snapshot", "snapshotClass": "snap"}
        put(here.api, kinds.STORAGE_PROFILES, "fast", "", spec={}, status=profile)
        here.cron()
        here.digest()
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        here.fill(IMPORT)
        made = await until(lambda: here.get(kinds.VOLUME_SNAPSHOTS, IMPORT))
        annotations = made["metadata"]["annotations"]
        assert annotations[names.SOURCE_VOLUME_MODE] == "Filesystem"
        assert annotations[names.ADVISED_RESTORE_SIZE] == "1Gi"
        assert made["spec"]["volumeSnapshotClassName"] == "snap"
        await until(lambda: here.reasons().get("UpToDate") == "ImportProgressing")
        assert here.get(kinds.DATA_VOLUMES, IMPORT)
        here.api.put(
            kinds.VOLUME_SNAPSHOTS,
            {**here.get(kinds.VOLUME_SNAPSHOTS, IMPORT), "status": {"readyToUse": True}},
        )
        await here.gone(kinds.DATA_VOLUMES, IMPORT)
        here.api.remove(PERSISTENT_VOLUME_CLAIMS, IMPORT, NAMESPACE)  # as the garbage collector does
        await until(lambda: here.content() == {"snapshot": {"name": IMPORT, "namespace": NAMESPACE}})
        await until(lambda: here.reasons().get("UpToDate") == "UpToDate")
        # Back to claims: the snapshot goes, and the content is imported again.
        put(
            here.api,
            kinds.STORAGE_PROFILES,
            "fast",
            "",
            spec={},
            status={"dataImportCronSourceFormat": "pvc"},
        )
        await here.gone(kinds.VOLUME_SNAPSHOTS, IMPORT)
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))


async def test_the_source_stays_until_the_snapshot_of_the_next_one_is_ready() -> None:
    async with cluster() as here:
        here.cron()
        await here.imported()
        put(
            here.api,
            kinds.STORAGE_PROFILES,
            "fast",
            "",
            spec={},
            status={"dataImportCronSourceFormat": "snapshot"},
        )
        made = await until(lambda: here.get(kinds.VOLUME_SNAPSHOTS, IMPORT))
        await until(lambda: here.reasons().get("UpToDate") == "ImportProgressing")
        assert here.content() == {"pvc": {"name": IMPORT, "namespace": NAMESPACE}}
        assert here.get(kinds.DATA_VOLUMES, IMPORT)
        here.api.put(kinds.VOLUME_SNAPSHOTS, {**made, "status": {"readyToUse": True}})
        await until(lambda: "snapshot" in here.content())
        await here.gone(kinds.DATA_VOLUMES, IMPORT)


@pytest.mark.feature("VMC-09")
async def test_instance_type_and_preference_of_the_cron_are_those_of_its_volumes_and_source() -> None:
    async with cluster() as here:
        wanted = {
            "instancetype.kubevirt.io/default-instancetype": "u1.medium",
            "instancetype.kubevirt.io/default-preference": "centos.7",
        }
        made = here.cron()
        metadata = {**made["metadata"], "labels": {**wanted, "example.com/team": "a"}}
        here.api.put(kinds.DATA_IMPORT_CRONS, {**made, "metadata": metadata})
        await here.imported()
        for kind, name in ((kinds.DATA_VOLUMES, IMPORT), (kinds.DATA_SOURCES, "ds")):
            found = here.get(kind, name)["metadata"]["labels"]
            assert wanted.items() <= found.items()
            assert "example.com/team" not in found


@pytest.mark.feature("STO-34")
async def test_class_of_the_template_is_used_in_place_of_the_default_one() -> None:
    async with cluster() as here:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        put(here.api, STORAGE_CLASSES, "usual", "", provisioner="csi.example", annotations=default)
        put(here.api, kinds.STORAGE_PROFILES, "usual", "", spec={}, status={})
        here.cron()
        await here.imported()
        wanted = here.get(kinds.DATA_VOLUMES, IMPORT)["spec"]["storage"]
        assert wanted["storageClassName"] == "fast"
        cron = here.get(kinds.DATA_IMPORT_CRONS, "cron")
        assert cron["metadata"]["annotations"][names.CRON_STORAGE_CLASS] == "fast"


@pytest.mark.feature("VMC-04")
async def test_another_storage_class_means_another_import() -> None:
    async with cluster() as here:
        storage = {"resources": {"requests": {"storage": "1Gi"}}}
        source = {"registry": {"url": "docker://registry.example/image:tag"}}
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        put(here.api, STORAGE_CLASSES, "fast", "", provisioner="csi.example", annotations=default)
        here.cron(template={"spec": {"source": source, "storage": storage}})
        await here.imported()
        cron = here.get(kinds.DATA_IMPORT_CRONS, "cron")
        assert cron["metadata"]["annotations"][names.CRON_STORAGE_CLASS] == "fast"
        first = here.get(kinds.DATA_VOLUMES, IMPORT)["metadata"]["uid"]
        virtual = {"storageclass.kubevirt.io/is-default-virt-class": "true"}
        put(here.api, kinds.STORAGE_PROFILES, "virtual", "", spec={}, status={})
        put(here.api, STORAGE_CLASSES, "virtual", "", provisioner="csi.example", annotations=virtual)
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT).get("metadata", {}).get("uid") != first)
        await here.gone(PERSISTENT_VOLUME_CLAIMS, IMPORT)
        again = await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        assert again["metadata"]["uid"] != first
        annotations = here.get(kinds.DATA_IMPORT_CRONS, "cron")["metadata"]["annotations"]
        assert annotations[names.CRON_STORAGE_CLASS] == "virtual"


async def test_a_data_source_of_a_user_is_left_alone() -> None:
    async with cluster() as here:
        mine = {"pvc": {"name": "mine", "namespace": NAMESPACE}}
        put(here.api, kinds.DATA_SOURCES, "ds", labels={"mine": "yes"}, spec={"source": mine})
        here.cron()
        here.digest()
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        here.fill(IMPORT)
        await until(lambda: here.reasons().get("UpToDate") == "UpToDate")
        assert here.content() == mine
        assert here.get(kinds.DATA_SOURCES, "ds")["metadata"]["labels"] == {"mine": "yes"}


async def test_two_crons_do_not_share_a_data_source() -> None:
    async with cluster() as here:
        here.cron()
        await until(lambda: here.get(kinds.DATA_SOURCES, "ds"))
        here.cron("second")
        event = await until(lambda: here.api.list(EVENTS))
        assert event[0]["reason"] == "ErrDataSourceAlreadyManaged"
        assert event[0]["message"] == "DataSource ds is already managed by DataImportCron cron"
        assert here.reasons("second") == {}
