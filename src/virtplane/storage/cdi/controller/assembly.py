"""The controllers of DataVolumes, put together: what cdi-deployment runs of this package."""

from __future__ import annotations

from typing import Protocol

from kubecore.client import Client
from kubecore.runtime import EventRecorder, Manager
from virtplane.storage.cdi.controller.clones import populator
from virtplane.storage.cdi.controller.clones.lookups import Lookups
from virtplane.storage.cdi.controller.clones.populator import ClonePopulator
from virtplane.storage.cdi.controller.clones.tokens import SigningKey
from virtplane.storage.cdi.controller.datavolume import flows
from virtplane.storage.cdi.controller.datavolume.cloning import Cloning
from virtplane.storage.cdi.controller.datavolume.reconciler import DataVolumeController
from virtplane.storage.cdi.controller.datavolume.references import References
from virtplane.storage.cdi.controller.populators import kinds
from virtplane.storage.cdi.controller.populators.reconciler import PopulatorController
from virtplane.storage.cdi.controller.progress import Progress, ScrapedProgress
from virtplane.storage.cdi.controller.settings import Settings
from virtplane.storage.cdi.controller.workers import cloning, importer, upload
from virtplane.storage.cdi.controller.workers.certificates import Issuer
from virtplane.storage.cdi.controller.workers.cloning import ClientIssuer, CloneController
from virtplane.storage.cdi.controller.workers.importer import ImportController
from virtplane.storage.cdi.controller.workers.upload import UploadController


class CertificateIssuer(Issuer, ClientIssuer, Protocol):
    """Who issues the certificates of upload servers and of those who send the sources of clones to them."""


def add_data_volume_controllers(
    client: Client,
    manager: Manager,
    settings: Settings,
    issuer: CertificateIssuer,
    namespace: str,
    scraper: Progress | None = None,
) -> None:
    """Add all of them to `manager`; `namespace` is that of the installation."""
    clone_scraper = scraper or ScrapedProgress("clone")
    scraper = scraper or ScrapedProgress()

    def recorder(name: str) -> EventRecorder:
        return recorder_of(client, manager, name)

    ImportController(client, manager, recorder(importer.NAME), settings, namespace)
    UploadController(client, manager, recorder(upload.NAME), settings, issuer, namespace)
    for flow in (flows.IMPORT, flows.UPLOAD, flows.EXTERNAL):
        DataVolumeController(client, manager, recorder(flow.controller), settings, flow, scraper)
    PopulatorController(client, manager, recorder(kinds.IMPORT.controller), settings, kinds.IMPORT, scraper)
    PopulatorController(client, manager, recorder(kinds.UPLOAD.controller), settings, kinds.UPLOAD, scraper)
    lookups = Lookups(manager, settings)
    key, references = SigningKey(client, namespace), References(manager)
    ClonePopulator(client, manager, recorder(populator.NAME), lookups, key, clone_scraper)
    CloneController(client, manager, recorder(cloning.NAME), lookups, issuer, key, namespace)
    for flow in (flows.CLAIM_CLONE, flows.SNAPSHOT_CLONE):
        events = recorder(flow.controller)
        clones = Cloning(client, events, lookups, references, key)
        DataVolumeController(client, manager, events, settings, flow, clone_scraper, clones)


def recorder_of(client: Client, manager: Manager, name: str) -> EventRecorder:
    """A recorder of the events of controller `name`, which works as long as `manager` does."""
    made = EventRecorder(client, name)
    manager.add_runnable(f"events-{name}", made.run)
    return made
