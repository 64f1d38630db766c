"""Attaching and growing against the real API server, each side with the rights that it has in a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import ADMIN_TOKEN, running_server
from tests.support.waiting import until

from kindling.controllers.environment import Environment
from kindling.controllers.volumes import attachment_rules
from kindling.controllers.volumes.attachments import AttachDetachController
from kindling.node.pods import identity
from kindling.node.volumes import csi_attachments, csi_records, csi_source
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.scheduler.csi import CsiVolume
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
)
from kubecore.runtime import Manager

VOLUME = CsiVolume("d.example.com", "h1")
USERS = f"""{ADMIN_TOKEN},admin,1,"system:masters"
node-token,system:node:n1,2,"system:nodes"
controllers-token,system:kube-controller-manager,3,""
"""


class Driver:
    name = VOLUME.driver
    capabilities = frozenset({csi_source.EXPAND})

    async def call(self, method: str, values: dict[str, Any]) -> None:
        assert method == "NodeExpandVolume"
        assert values["capacity_range"] == {"required_bytes": 2 << 30}


async def prepare(admin: Client) -> JsonObject:
    """A pod of the node with a bound claim; returns the pod."""
    await admin.create(NAMESPACES, {"metadata": {"name": "lab"}})
    account = {"metadata": {"name": "default", "namespace": "lab"}}
    await admin.create(SERVICE_ACCOUNTS, account)
    managed = {attachment_rules.MANAGED: "true"}
    await admin.create(NODES, {"metadata": {"name": "n1", "annotations": managed}})
    await admin.create(
        STORAGE_CLASSES,
        {"metadata": {"name": "s"}, "provisioner": VOLUME.driver, "allowVolumeExpansion": True},
    )
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "s"}
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = await admin.create(
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": "c", "namespace": "lab", "annotations": done},
            "spec": {**common, "volumeName": "pv", "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    await admin.patch(PERSISTENT_VOLUME_CLAIMS, "c", status, "lab", type="merge", subresource="status")
    await admin.create(
        PERSISTENT_VOLUMES,
        {
            "metadata": {"name": "pv"},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "lab", "name": "c", "uid": claim["metadata"]["uid"]},
                "csi": {"driver": VOLUME.driver, "volumeHandle": VOLUME.handle},
            },
        },
    )
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    return await admin.create(PODS, {"metadata": {"name": "p", "namespace": "lab"}, "spec": spec})


async def test_a_volume_is_attached_grown_and_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "ROOT", tmp_path / "k")
    monkeypatch.setattr(csi_attachments, "_FIRST_LOOK_SECONDS", 0.02)
    users = tmp_path / "users.csv"
    users.write_text(USERS)
    async with (
        running_server(tmp_path, token_file=users) as running,
        running.client() as admin,
        running.client("node-token") as node,
        running.client("controllers-token") as controllers,
    ):
        pod = await prepare(admin)
        manager = Manager(controllers)
        AttachDetachController(Environment(manager))
        attachments = Attachments(node, "n1")
        working = [asyncio.create_task(manager.run()), asyncio.create_task(attachments.run())]
        try:
            await _course(admin, node, attachments, pod)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)


async def _course(admin: Client, node: Client, attachments: Attachments, pod: JsonObject) -> None:
    uid, name = pod["metadata"]["uid"], VOLUME.attachment_name("n1")
    waiting = asyncio.create_task(attachments.wait(uid, VOLUME))
    async for event in admin.watch(VOLUME_ATTACHMENTS):
        if event.object["metadata"].get("name") == name:
            break
    attached = {"attached": True, "attachmentMetadata": {"device": "/dev/x"}}
    await admin.patch(VOLUME_ATTACHMENTS, name, {"status": attached}, type="merge", subresource="status")
    assert await asyncio.wait_for(waiting, 10) == {"device": "/dev/x"}
    found = await admin.get(NODES, "n1")
    assert found["status"]["volumesInUse"] == [VOLUME.unique_name]
    assert found["status"]["volumesAttached"] == [{"name": VOLUME.unique_name, "devicePath": ""}]

    larger = {"spec": {"capacity": {"storage": "2Gi"}}}
    volume = await admin.patch(PERSISTENT_VOLUMES, "pv", larger, type="merge")
    pending = {
        "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
    }
    grow = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    await admin.patch(PERSISTENT_VOLUME_CLAIMS, "c", grow, "lab", type="merge")
    await admin.patch(
        PERSISTENT_VOLUME_CLAIMS, "c", {"status": pending}, "lab", type="merge", subresource="status"
    )
    record = Record(
        uid, "pv", VOLUME.driver, VOLUME.handle, block=False, staged=False, attachment=name,
        claim=("lab", "c"), shown_as="v", size=1 << 30, published=True,
    )  # fmt: skip
    csi_records.write(record, "n1")
    growth = Growth(node, CsiRequests(node), "n1", lambda *_: None)
    source = csi_source.persistent(volume, read_only=False)
    driver: Any = Driver()
    await growth.grow(driver, pod, source, record, mounting=False)
    status = (await admin.get(PERSISTENT_VOLUME_CLAIMS, "c", "lab"))["status"]
    assert status["capacity"] == {"storage": "2Gi"}
    assert "allocatedResourceStatuses" not in status
    assert "conditions" not in status

    await admin.delete(PODS, "p", "lab", grace_period_seconds=0)
    assert (await admin.get(VOLUME_ATTACHMENTS, name))["status"]["attached"]
    csi_records.remove(record)
    attachments.forget(uid)

    async def gone() -> bool:
        listing = await admin.list(VOLUME_ATTACHMENTS)
        return not listing["items"]

    await until(gone)
    found = await admin.get(NODES, "n1")
    assert not found["status"].get("volumesInUse")
    assert not found["status"].get("volumesAttached")
