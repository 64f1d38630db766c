"""The source of a DataImportCron, and what its digests mean."""

from __future__ import annotations

import re
from enum import Enum

from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourceRegistry

IMAGE = "sha256:"
CLAIM = "uid:"
_DIGEST = re.compile(r"(?:sha256:(?P<image>[0-9a-f]{12,128})|uid:(?P<claim>[0-9a-f][0-9a-f-]{11,63}))")
_TAG_OR_DIGEST = re.compile(r"(?P<name>docker://.*?)(?:@[^/@]*|:[^/:@]*(?:@[^/@]*)?)?$")
_DOCKER = "docker://"


class Polling(Enum):
    """Who finds out whether a source has changed."""

    JOB = "a job that asks the registry"
    NODE = "a pod whose image its node pulls"
    STREAM = "the controller that reads an ImageStream"
    CLAIM = "the controller that reads a claim"

    @property
    def is_controllers(self) -> bool:
        """Whether the controller itself polls at the times of the schedule."""
        return self is not Polling.JOB


def registry(cron: DataImportCron) -> DataVolumeSourceRegistry | None:
    """The registry that images come from."""
    source = cron.spec.template.spec.source
    return source.registry if source is not None else None


def polling(cron: DataImportCron) -> Polling | None:
    """Who polls the source; None for one that nobody knows how to poll."""
    source = cron.spec.template.spec.source
    if source is None:
        return None
    if source.pvc is not None:
        return Polling.CLAIM
    if source.registry is None:
        return None
    if source.registry.image_stream:
        return Polling.STREAM
    if not source.registry.url:
        return None
    return Polling.NODE if source.registry.pull_method == "node" else Polling.JOB


def desired_digest(cron: DataImportCron) -> str:
    """The digest that should be imported; empty for none, and for text that is no digest."""
    text = cron.metadata.annotations.get(names.SOURCE_DESIRED_DIGEST, "")
    return text if _DIGEST.fullmatch(text) else ""


def import_name(cron: DataImportCron, digest: str) -> str:
    """The name of the import of a digest. Raises ValueError for what is no digest."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise ValueError(f"{digest!r} is no digest")
    return cdi_names.cron_import(cron.spec.managed_data_source, found["image"] or found["claim"])


def image_of(url: str) -> str:
    """The image of a ``docker://`` address."""
    return url.removeprefix(_DOCKER)


def url_of_digest(url: str, digest: str) -> str:
    """The address of the very image with `digest`, instead of the tag in `url`."""
    found = _TAG_OR_DIGEST.fullmatch(url)
    return f"{found['name'] if found is not None else url}@{digest}"


def url_of_image(reference: str) -> str:
    """The address of an image that an ImageStream refers to."""
    return f"{_DOCKER}{reference}"
