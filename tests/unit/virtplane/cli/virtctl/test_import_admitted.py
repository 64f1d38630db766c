"""The machines that ``import`` makes, under the rules of admission."""

from __future__ import annotations

import pytest

from kubecore.json import JsonObject
from kubecore.patch.jsonpatch import apply_json_patch
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.cli.virtctl.importing.plans import Disk, Plan, Wishes, machine
from virtplane.cli.virtctl.uploading.uploadclaims import Wanted
from virtplane.compute.apiserver.admission import review
from virtplane.operators.kubevirt.strategy.webhooks import MUTATORS, VALIDATORS

UPLOADED = Disk("5Gi", {"upload": {}})
EMPTY = Disk("5Gi", {"blank": {}})
REMOTE = Disk("5Gi", {"http": {"url": "https://h/a"}})


class Nothing:
    """A cluster without objects."""

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return None

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return []


@pytest.mark.feature("NEW-09")
@pytest.mark.parametrize(
    ("plan", "wishes"),
    [
        (Plan("vm", (UPLOADED,)), Wishes()),
        (
            Plan("vm", (REMOTE,)),
            Wishes(runs=True, storage=Wanted("", "fast", "ReadWriteMany", "block", True)),
        ),
        (Plan("vm", (UPLOADED, EMPTY), True, 4, "3Gi"), Wishes()),
        (Plan("vm", (UPLOADED,), True, 2, "1Gi", is_efi=True), Wishes()),
        (Plan("vm", (UPLOADED,), True, 2, "1Gi", is_efi=True, is_secure_boot=True), Wishes()),
        (Plan("vm", (UPLOADED,)), Wishes(firmware="bios", disk_bus="scsi", nic_model="e1000")),
    ],
)
async def test_machines_are_admitted_without_warnings(plan: Plan, wishes: Wishes) -> None:
    document = machine(plan, wishes, "ns")
    status = {"phase": "Deployed", "defaultArchitecture": "amd64"}
    config = ClusterConfig({"status": status, "spec": {"configuration": {}}})
    webhooks = [each for each in (*MUTATORS, *VALIDATORS) if "virtualmachines" in each.resources]
    assert len(webhooks) >= 2
    for webhook in webhooks:
        request = {
            "operation": "CREATE",
            "resource": {"resource": "virtualmachines"},
            "namespace": "ns",
            "userInfo": {"username": "somebody"},
            "object": document,
        }
        answer = await review(webhook.path, request, config, Nothing())
        assert (answer.allowed, answer.status, list(answer.warnings)) == (True, None, [])
        document = apply_json_patch(document, list(answer.patches))
