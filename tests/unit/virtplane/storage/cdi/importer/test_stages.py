"""Multi-stage imports from checkpoints to the disk: the controller's stages, its pods, the importer."""

from __future__ import annotations

from pathlib import Path

from tests.support.cdi_claims import STORAGE, claim
from tests.support.image_server import ServedFile, serving
from tests.support.ovirt import DISK, IMAGE, PASSWORD, USER, OvirtDisk, ovirt_engine
from tests.unit.virtplane.storage.cdi.importer.conftest import Ended, Volume
from tests.unit.virtplane.storage.cdi.importer.test_imageio import changed, delta

from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeCheckpoint
from virtplane.storage.cdi.controller.pods.importer import Import, importer_pod, needs_scratch
from virtplane.storage.cdi.controller.pods.worker import Workers
from virtplane.storage.cdi.controller.workers.checkpoints import Stages, is_paused, next_stage

WORKERS = Workers("importer:1", "cloner:1", "uploadserver:1")
CHECKPOINTS = tuple(
    DataVolumeCheckpoint(previous=previous, current=current)
    for previous, current in (("", "one"), ("one", "two"), ("two", IMAGE))
)


class StagedImport:
    """A claim whose importer pods run as the controller's stages say; tests play controller and kubelet."""

    def __init__(self, volume: Volume, source: dict[str, str]) -> None:
        self._volume = volume
        self.annotations = {**source, "import.secretName": "creds"}

    def step(self, stages: Stages) -> bool:
        """One step of the controller; whether a stage is to run."""
        for name, value in next_stage(claim(annotations=self.annotations), stages).items():
            self.annotations.pop(name.removeprefix(STORAGE), None)
            if value is not None:
                self.annotations[name.removeprefix(STORAGE)] = value
        return self.annotations.get("pod.phase") != "Succeeded"

    async def run_pod(self) -> Ended:
        """Run the importer by the environment of the stage's pod, with the secret's values."""
        found = claim(annotations=self.annotations)
        assert needs_scratch(found) == (self.annotations["import.source"] == "imageio")
        pod = importer_pod(WORKERS, found, Import(target=found, overhead="0", has_scratch=True))
        environment = {each["name"]: each.get("value", "") for each in pod["spec"]["containers"][0]["env"]}
        environment |= {"IMPORTER_ACCESS_KEY_ID": USER, "IMPORTER_SECRET_KEY": PASSWORD}
        environment["IMPORTER_IMAGE_SIZE"] = "20Mi"
        source, endpoint = environment.pop("IMPORTER_SOURCE"), environment.pop("IMPORTER_ENDPOINT")
        ended = await self._volume.run(source, endpoint, **environment)
        if ended.code == 0:
            self.annotations |= {"pod.phase": "Succeeded", "checkpoint.pod.id": "pod"}
        return ended

    @property
    def is_paused(self) -> bool:
        """Whether the controller waits for another checkpoint."""
        return is_paused(claim(annotations=self.annotations))


async def test_checkpoints_are_applied_as_their_user_names_them(
    volume: Volume, tmp_path: Path, raw_disk: bytes
) -> None:
    volume.give_scratch()
    second = changed(raw_disk)
    third = second[:1000] + b"third" * 100 + second[1500:]
    disk = OvirtDisk(raw_disk, {"one": raw_disk, "two": delta(tmp_path, raw_disk, second, "one")})
    async with ovirt_engine(disk) as address:
        run = StagedImport(
            volume, {"import.source": "imageio", "import.endpoint": address, "import.diskId": DISK}
        )
        for number, expected in enumerate((raw_disk, second, third), 1):
            stages = Stages(CHECKPOINTS[:number], has_final=number == len(CHECKPOINTS))
            if number == len(CHECKPOINTS):
                disk.content = delta(tmp_path, second, third, "two")
            assert run.step(stages)
            ended = await run.run_pod()
            assert ended.code == 0, ended.text
            assert ended.disk.read_bytes()[: len(expected)] == expected
            assert not run.step(stages)
            assert run.is_paused == (number < len(CHECKPOINTS))
    assert run.annotations["checkpoint.done"] == "true"


async def test_web_servers_have_no_deltas_and_give_the_whole_object_each_time(
    volume: Volume, raw_disk: bytes
) -> None:
    file = ServedFile(raw_disk)
    async with serving(file) as address:
        run = StagedImport(volume, {"import.source": "http", "import.endpoint": f"{address}/disk"})
        for number, expected in enumerate((raw_disk, changed(raw_disk)), 1):
            file.content = expected
            assert run.step(Stages(CHECKPOINTS[:number]))
            ended = await run.run_pod()
            assert ended.code == 0, ended.text
            assert ended.disk.read_bytes()[: len(expected)] == expected
            assert not run.step(Stages(CHECKPOINTS[:number]))
