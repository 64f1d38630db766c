"""Who finds out that the source of a DataImportCron has changed."""

from __future__ import annotations

import orjson
import pytest
from tests.support.waiting import until
from tests.unit.virtplane.storage.cdi.controller.crons import DIGEST, IMPORT, NAMESPACE, cluster, put

from kubecore.client import Request, Response
from kubecore.json import JsonObject
from kubecore.resources import CRON_JOBS, JOBS, PERSISTENT_VOLUME_CLAIMS, PODS
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.serving.rights import REVIEWS
from virtplane.storage.cdi.controller.crons import sources
from virtplane.storage.cdi.controller.crons.polling import IMAGE_STREAMS

pytestmark = pytest.mark.feature("VMC-02")


def annotations_of(cron: JsonObject) -> dict[str, str]:
    return dict(cron.get("metadata", {}).get("annotations", {}))


async def test_jobs_poll_a_registry_until_the_cron_is_gone() -> None:
    async with cluster() as here:
        uid = here.cron()["metadata"]["uid"]
        name = f"cron-{uid[:8]}"
        job = await until(lambda: here.get(CRON_JOBS, name, "cdi"))
        assert job["spec"]["schedule"] == "0 0 1 1 *"
        assert here.get(JOBS, f"initial-job-{name}", "cdi")
        here.api.remove(kinds.DATA_IMPORT_CRONS, "cron", NAMESPACE)
        await here.gone(CRON_JOBS, name, "cdi")
        await here.gone(JOBS, f"initial-job-{name}", "cdi")
        assert here.get(kinds.DATA_SOURCES, "ds")


async def test_jobs_of_an_earlier_cron_go() -> None:
    async with cluster() as here:
        labels = {names.CRON: "cron", names.CRON_NAMESPACE: NAMESPACE}
        put(here.api, CRON_JOBS, "cron-00000000", "cdi", labels=labels, spec={})
        here.cron()
        await here.gone(CRON_JOBS, "cron-00000000", "cdi")


async def test_jobs_follow_the_proxy_of_cdi() -> None:
    async with cluster() as here:
        uid = here.cron()["metadata"]["uid"]
        await until(lambda: here.get(CRON_JOBS, f"cron-{uid[:8]}", "cdi"))
        config = here.get(kinds.CDI_CONFIGS, "config", "")
        proxy = {"HTTPSProxy": "http://proxy.example", "trustedCAProxy": "authorities"}
        here.api.put(kinds.CDI_CONFIGS, {**config, "status": {"importProxy": proxy}})

        def pod() -> JsonObject:
            job = here.get(CRON_JOBS, f"cron-{uid[:8]}", "cdi")
            spec: JsonObject = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            return spec if spec.get("volumes") else {}

        spec = await until(pod)
        variable = {"name": "https_proxy", "value": "http://proxy.example"}
        assert variable in spec["containers"][0]["env"]
        assert spec["volumes"][0]["configMap"]["name"] == "authorities"


async def test_nobody_polls_without_a_schedule() -> None:
    async with cluster() as here:
        here.cron(schedule="")
        await until(lambda: here.reasons().get("UpToDate") == "NoDigest")
        assert here.api.list(CRON_JOBS) == []


@pytest.mark.looptime
async def test_a_node_pulls_and_tells_the_digest() -> None:
    async with cluster() as here:
        registry = {"url": "docker://registry.example/image:tag", "pullMethod": "node"}
        uid = here.cron(source={"registry": registry})["metadata"]["uid"]
        name = f"poller-cron-{uid[:8]}"
        pod = await until(lambda: here.get(PODS, name))
        assert pod["spec"]["containers"][0]["image"] == "registry.example/image:tag"
        assert pod["metadata"]["ownerReferences"][0]["uid"] == uid
        image = f"registry.example/image@{DIGEST}"
        state = {"terminated": {"exitCode": 0}}
        containers = [{"name": "image-container", "imageID": image, "state": state}]
        here.api.put(PODS, {**pod, "status": {"phase": "Succeeded", "containerStatuses": containers}})
        await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        await here.gone(PODS, name)
        found = annotations_of(here.get(kinds.DATA_IMPORT_CRONS, "cron"))
        assert found[names.SOURCE_DESIRED_DIGEST] == DIGEST
        assert here.api.list(CRON_JOBS) == []


async def test_an_image_stream_tells_its_newest_image() -> None:
    async with cluster() as here:
        items = [{"image": DIGEST, "dockerImageReference": "registry.example/image@" + DIGEST}]
        tags = [{"tag": "old", "items": [{"image": "x"}]}, {"tag": "new", "items": items}]
        put(here.api, IMAGE_STREAMS, "stream", status={"tags": tags})
        registry = {"imageStream": "stream:new", "pullMethod": "node"}
        here.cron(source={"registry": registry})
        made = await until(lambda: here.get(kinds.DATA_VOLUMES, IMPORT))
        assert made["spec"]["source"]["registry"] == {
            "url": f"docker://registry.example/image@{DIGEST}",
            "pullMethod": "node",
        }


async def test_a_claim_is_known_by_its_uid() -> None:
    async with cluster() as here:
        uid = put(here.api, PERSISTENT_VOLUME_CLAIMS, "golden", spec={})["metadata"]["uid"]
        here.cron(source={"pvc": {"name": "golden", "namespace": NAMESPACE}})
        made = await until(lambda: here.get(kinds.DATA_VOLUMES, f"ds-{uid[:12]}"))
        assert made["spec"]["source"] == {"pvc": {"name": "golden", "namespace": NAMESPACE}}
        found = await until(lambda: annotations_of(here.get(kinds.DATA_IMPORT_CRONS, "cron")))
        assert found[names.SOURCE_DESIRED_DIGEST] == f"uid:{uid}"
        assert names.NEXT_CRON_TIME in found


async def test_a_claim_of_others_needs_their_permission() -> None:
    async with cluster() as here:
        asked: list[JsonObject] = []

        def refuse(request: Request) -> Response | None:
            if request.path.endswith(f"/{REVIEWS.plural}"):
                asked.append(orjson.loads(request.body or b"{}"))
                return Response(201, {}, orjson.dumps({"status": {"allowed": False}}))
            return None

        here.api.reactions.append(refuse)
        put(here.api, PERSISTENT_VOLUME_CLAIMS, "golden", "theirs", spec={})
        here.cron(source={"pvc": {"name": "golden", "namespace": "theirs"}}, serviceAccountName="robot")
        await until(lambda: here.reasons() == {"Progressing": "NotAuthorized", "UpToDate": "Outdated"})
        assert here.api.list(kinds.DATA_VOLUMES) == []
        assert asked[0]["spec"]["user"] == f"system:serviceaccount:{NAMESPACE}:robot"
        told = annotations_of(here.get(kinds.DATA_IMPORT_CRONS, "cron"))
        assert names.SOURCE_DESIRED_DIGEST not in told, "its uid is told to somebody who may not clone it"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("docker://r.example/image:tag", "docker://r.example/image"),
        ("docker://r.example:5000/a/image", "docker://r.example:5000/a/image"),
        ("docker://r.example:5000/a/image:1.2-x", "docker://r.example:5000/a/image"),
        ("docker://r.example/image:tag@sha256:00", "docker://r.example/image"),
        ("docker://r.example/image@sha256:00", "docker://r.example/image"),
    ],
)
def test_a_digest_takes_the_place_of_the_tag(url: str, name: str) -> None:
    assert sources.url_of_digest(url, DIGEST) == f"{name}@{DIGEST}"
