"""The controllers of DataVolumes, put together: what cdi-deployment runs of this package."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.runtime import EventRecorder, Manager
from virtplane.storage.cdi.controller.datavolume import flows
from virtplane.storage.cdi.controller.datavolume.reconciler import DataVolumeController
from virtplane.storage.cdi.controller.populators import kinds
from virtplane.storage.cdi.controller.populators.reconciler import PopulatorController
from virtplane.storage.cdi.controller.progress import Progress, ScrapedProgress
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers import importer, upload
from virtplane.storage.cdi.controller.workers.certificates import Issuer
from virtplane.storage.cdi.controller.workers.importer import ImportController
from virtplane.storage.cdi.controller.workers.upload import UploadController


def add_data_volume_controllers(
    client: Client,
    manager: Manager,
    settings: Settings,
    issuer: Issuer,
    namespace: str,
    scraper: Progress | None = None,
) -> None:
    """Add all of them to `manager`; `namespace` is that of the installation."""
    scraper = scraper or ScrapedProgress()

    def recorder(name: str) -> EventRecorder:
        return recorder_of(client, manager, name)

    ImportController(client, manager, recorder(importer.NAME), settings, namespace)
    UploadController(client, manager, recorder(upload.NAME), settings, issuer, namespace)
    for flow in (flows.IMPORT, flows.UPLOAD, flows.EXTERNAL):
        DataVolumeController(client, manager, recorder(flow.controller), settings, flow, scraper)
    PopulatorController(client, manager, recorder(kinds.IMPORT.controller), settings, kinds.IMPORT, scraper)
    PopulatorController(client, manager, recorder(kinds.UPLOAD.controller), settings, kinds.UPLOAD, scraper)


def recorder_of(client: Client, manager: Manager, name: str) -> EventRecorder:
    """A recorder of the events of controller `name`, which works as long as `manager` does."""
    made = EventRecorder(client, name)
    manager.add_runnable(f"events-{name}", made.run)
    return made
