"""Volumes of a real CSI driver become available to pods: attachment, secrets, tokens, groups, refusals."""

from __future__ import annotations

import asyncio
import os

import grpc
import orjson
import pytest
from tests.support.csi_driver import NAME
from tests.support.waiting import until
from tests.unit.kindling.node.csi_driver.conftest import MEBIBYTE, Host, size_of, using

from kindling.node.pods import identity
from kindling.node.volumes import csi_attachments, mounts
from kindling.node.volumes.manager import VolumeProblem
from kindling.scheduler.csi import CsiVolume, inline_handle
from kubecore.resources import SECRETS

pytestmark = [pytest.mark.host, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


async def test_a_pod_waits_until_its_volume_is_attached_and_the_node_says_what_it_uses(host: Host) -> None:
    host.claim("c")
    pod = host.pod("u1", using("c"))
    waiting = asyncio.create_task(host.volumes.prepare(pod))
    unique = CsiVolume(NAME, "c").unique_name
    await until(lambda: host.node()["status"].get("volumesInUse") == [unique])
    assert not waiting.done()
    host.attach("c")
    prepared = (await asyncio.wait_for(waiting, 10))["data"]
    assert mounts.is_mounted(prepared.path)
    assert size_of(prepared.path) > 10 * MEBIBYTE
    assert dict(host.driver.last("NodeStageVolume").publish_context) == {
        "device": str(host.driver.devices["c"])
    }
    await host.end("u1")
    await until(lambda: not host.node()["status"].get("volumesInUse"))


async def test_a_volume_that_is_not_attached_in_time_is_told(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csi_attachments, "WAIT_SECONDS", 0.1)
    host.claim("c")
    with pytest.raises(VolumeProblem) as problem:
        await host.volumes.prepare(host.pod("u1", using("c")))
    assert problem.value.event_message == (
        "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[data], "
        "failed to process volumes=[]: context deadline exceeded"
    )


async def test_an_inline_volume_gets_its_handle_its_secret_and_what_the_driver_asks_for(host: Host) -> None:
    volume = {
        "name": "scratch",
        "csi": {
            "driver": NAME,
            "fsType": "xfs",
            "volumeAttributes": {"size": "1"},
            "nodePublishSecretRef": {"name": "s"},
        },
    }
    with pytest.raises(VolumeProblem, match=r'"Ephemeral" not supported .* \(no CSIDriver object\)'):
        await host.volumes.prepare(host.pod("u0", volume))
    host.rules(volumeLifecycleModes=["Persistent"])
    with pytest.raises(VolumeProblem, match=r'only supports \["Persistent"\]'):
        await host.volumes.prepare(host.pod("u0", volume))
    host.rules(
        volumeLifecycleModes=["Persistent", "Ephemeral"],
        podInfoOnMount=True,
        tokenRequests=[{"audience": ""}, {"audience": "vault", "expirationSeconds": 600}],
    )
    with pytest.raises(VolumeProblem, match="fetching NodePublishSecretRef ns/s failed"):
        await host.volumes.prepare(host.pod("u1", volume))
    host.api.put(SECRETS, {"metadata": {"name": "s", "namespace": "ns"}, "data": {"key": "dmFsdWU="}})
    prepared = (await host.volumes.prepare(host.pod("u1", volume)))["scratch"]
    assert prepared.path == identity.ROOT / "pods/u1/volumes/kubernetes.io~csi/scratch/mount"
    request = host.driver.last("NodePublishVolume")
    assert request.volume_id == inline_handle("u1", "scratch")
    assert dict(request.secrets) == {"key": "value"}
    context = dict(request.volume_context)
    tokens = orjson.loads(context.pop("csi.storage.k8s.io/serviceAccount.tokens"))
    assert tokens["vault"] == {
        "token": "token for vault 600",
        "expirationTimestamp": "2027-01-15T08:00:00Z",
    }
    assert tokens[""]["token"] == "token for  3600"
    assert context == {
        "size": "1",
        "csi.storage.k8s.io/pod.name": "pod-u1",
        "csi.storage.k8s.io/pod.namespace": "ns",
        "csi.storage.k8s.io/pod.uid": "u1",
        "csi.storage.k8s.io/serviceAccount.name": "acc",
        "csi.storage.k8s.io/ephemeral": "true",
    }
    assert not any(name == "NodeStageVolume" for name, _ in host.driver.calls)
    await host.end("u1")


async def test_tokens_go_into_the_secrets_of_a_driver_that_wants_them_there_again_and_again(
    host: Host,
) -> None:
    host.rules(
        volumeLifecycleModes=["Ephemeral"],
        tokenRequests=[{"audience": "a"}],
        serviceAccountTokenInSecrets=True,
        requiresRepublish=True,
    )
    volume = {"name": "v", "csi": {"driver": NAME}}
    await host.volumes.prepare(host.pod("u1", volume))
    await host.look()
    calls = [request for name, request in host.driver.calls if name == "NodePublishVolume"]
    assert len(calls) == 2
    for request in calls:
        assert list(request.secrets) == ["csi.storage.k8s.io/serviceAccount.tokens"]
        assert dict(request.volume_context) == {}
    host.driver.refusals["NodePublishVolume"] = (grpc.StatusCode.INTERNAL, "no")
    await host.look()
    failed = 'MountVolume.SetUp failed for volume "v" : rpc error: code = Internal desc = no'
    assert host.events == [("Pod", "FailedMount", failed)]
    assert mounts.is_mounted(identity.ROOT / "pods/u1/volumes/kubernetes.io~csi/v/mount")
    await host.end("u1")


async def test_the_second_pod_of_a_volume_of_one_pod_is_refused(host: Host) -> None:
    host.claim("c", accessModes=["ReadWriteOncePod"])
    host.attach("c")
    await host.volumes.prepare(host.pod("u1", using("c")))
    with pytest.raises(VolumeProblem, match="ReadWriteOncePod access mode and is already in use") as problem:
        await host.volumes.prepare(host.pod("u2", using("c")))
    assert problem.value.event_message.startswith('MountVolume.SetUp failed for volume "pv-c" : volume uses')
    await host.end("u1")
    await host.volumes.prepare(host.pod("u3", using("c")))
    await host.end("u3")


@pytest.mark.parametrize(
    ("policy", "fs_type", "group"),
    [
        ("ReadWriteOnceWithFSType", "xfs", 2000),
        ("ReadWriteOnceWithFSType", "", 0),
        ("File", "", 2000),
        ("None", "xfs", 0),
    ],
)
async def test_the_drivers_policy_says_whether_a_volume_gets_the_pods_group(
    host: Host, policy: str, fs_type: str, group: int
) -> None:
    host.rules(fsGroupPolicy=policy)
    host.claim("c", csi={"fsType": fs_type})
    host.attach("c")
    pod = host.pod("u1", using("c"), securityContext={"fsGroup": 2000})
    path = (await host.volumes.prepare(pod))["data"].path
    assert path.stat().st_gid == group
    await host.end("u1")


async def test_a_claim_that_only_has_the_name_of_an_ephemeral_volume_is_not_used(host: Host) -> None:
    host.claim("pod-u1-data")
    with pytest.raises(VolumeProblem, match=r"PVC ns/pod-u1-data was not created for pod ns/pod-u1"):
        await host.volumes.prepare(host.pod("u1", {"name": "data", "ephemeral": {}}))


async def test_steps_that_fail_are_named_as_a_kubelet_names_them(host: Host) -> None:
    host.claim("c")
    host.claim("b", volumeMode="Block")
    for name in ("c", "b"):
        host.attach(name)
    for method, claim, step, reason in (
        ("NodeStageVolume", "c", "MountVolume.MountDevice", "FailedMount"),
        ("NodePublishVolume", "c", "MountVolume.SetUp", "FailedMount"),
        ("NodeStageVolume", "b", "MapVolume.SetUpDevice", "FailedMapVolume"),
        ("NodePublishVolume", "b", "MapVolume.MapPodDevice", "FailedMapVolume"),
    ):
        host.driver.refusals = {method: (grpc.StatusCode.INTERNAL, "no")}
        with pytest.raises(VolumeProblem) as problem:
            await host.volumes.prepare(host.pod("u1", using(claim)))
        text = f'{step} failed for volume "pv-{claim}" : rpc error: code = Internal desc = no'
        assert (problem.value.event_reason, problem.value.event_message) == (reason, text)
    host.driver.refusals = {}
    await host.end("u1")
