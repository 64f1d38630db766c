"""Polling that the controller does itself: of nodes that pull, image streams and claims."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from kubecore.client import Client
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.schedules import ScheduleError, times_after
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS, ResourceType
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.objects import AnyObject
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.controller.crons import pollers, rights, sources
from virtplane.storage.cdi.controller.crons.pollers import Pollers
from virtplane.storage.cdi.controller.crons.sources import Polling
from virtplane.storage.csi.parts import delete

logger = logging.getLogger(__name__)

IMAGE_STREAMS = ResourceType("image.openshift.io", "v1", "imagestreams", "ImageStream")
_IMAGE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FAILED = "Failed"
_PULL_SECONDS = 3.0
"""How often the pod that has its node pull is looked at."""
_RETRY_SECONDS = 60.0
"""After this time a source that could not be polled is asked again."""


class _ImageStreamItem(ApiStruct, kw_only=True):
    image: str = ""
    docker_image_reference: str = ""


class _ImageStreamTag(ApiStruct, kw_only=True):
    tag: str = ""
    items: tuple[_ImageStreamItem, ...] = ()


class _ImageStreamStatus(ApiStruct, kw_only=True):
    tags: tuple[_ImageStreamTag, ...] = ()


class ImageStream(ApiStruct, kw_only=True):
    """OpenShift's names for images; the newest image of a tag comes first."""

    metadata: ObjectMeta = ObjectMeta()
    status: _ImageStreamStatus = _ImageStreamStatus()


class _Waiting(ApiStruct, kw_only=True):
    reason: str = ""


class _State(ApiStruct, kw_only=True):
    waiting: _Waiting | None = None
    terminated: Mapping[str, object] | None = None


class _Container(ApiStruct, kw_only=True):
    name: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    state: _State = _State()


class _PodStatus(ApiStruct, kw_only=True):
    container_statuses: tuple[_Container, ...] = ()
    phase: str = ""


class PullingPod(ApiStruct, kw_only=True):
    """A pod that has its node pull, as far as it tells what was pulled."""

    metadata: ObjectMeta = ObjectMeta()
    status: _PodStatus = _PodStatus()


class NotPolled(Exception):
    """The source cannot tell its digest now; the text says why. `unauthorized`: it may not, to this cron."""

    def __init__(self, message: str, *, unauthorized: bool = False) -> None:
        super().__init__(message)
        self.unauthorized = unauthorized


@dataclass(frozen=True, slots=True)
class Polled:
    """What polling has found: annotations of the cron, and when to look again (None: not at all)."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    after_seconds: float | None = None
    is_unauthorized: bool = False
    """The cron's service account may not clone the source."""


@dataclass(frozen=True, slots=True)
class _Answer:
    digest: str
    reference: str = ""


class SourcePoller:
    """Polls at the times of schedules. `has_image_streams`: the cluster serves them."""

    def __init__(self, client: Client, *, has_image_streams: bool = False) -> None:
        self._client, self._authorizer = client, Authorizer(client)
        self._has_image_streams = has_image_streams

    async def poll(self, cron: DataImportCron, settings: Pollers) -> Polled:
        """Ask the source of `cron`, if it is time. Raises StatusError, ConnectionFailed."""
        kind = sources.polling(cron)
        if kind is None or not kind.is_controllers or not cron.spec.schedule:
            return Polled()
        now = times.now()
        if not is_due(cron, now):
            return _next(cron, now, {})
        try:
            answer = await self._ask(kind, cron, settings)
        except NotPolled as error:
            logger.warning(
                "the source of DataImportCron %s/%s cannot be polled, which is tried again: %s",
                cron.metadata.namespace,
                cron.metadata.name,
                error,
            )
            return Polled(after_seconds=_RETRY_SECONDS, is_unauthorized=error.unauthorized)
        if answer is None:
            return Polled(after_seconds=_PULL_SECONDS)
        found = {names.LAST_CRON_TIME: times.format_time(now), names.SOURCE_DESIRED_DIGEST: answer.digest}
        if answer.reference:
            found[names.IMAGE_STREAM_DOCKER_REF] = answer.reference
        return _next(cron, now, found)

    async def forget(self, cron: DataImportCron) -> None:
        """Remove the pod whose answer is now in `cron`. Raises StatusError."""
        if sources.polling(cron) is Polling.NODE and not is_due(cron, times.now()):
            pod = await self._pod(cron)
            if pod is not None:
                await delete(self._client, PODS, pod)

    async def _ask(self, kind: Polling, cron: DataImportCron, settings: Pollers) -> _Answer | None:
        """The source's answer; None while it is awaited. Raises NotPolled, StatusError."""
        if kind is Polling.STREAM:
            return await self._stream(cron)
        if kind is Polling.CLAIM:
            return await self._claim(cron)
        return await self._node(cron, settings)

    async def _claim(self, cron: DataImportCron) -> _Answer:
        """The uid of the claim. Who may not clone it learns neither that, nor whether there is one."""
        refusal = await rights.refusal(self._authorizer, cron)
        if refusal:
            raise NotPolled(refusal, unauthorized=True)
        source = cron.spec.template.spec.source
        assert source is not None and source.pvc is not None
        namespace = source.pvc.namespace or cron.metadata.namespace
        document = await self._get(PERSISTENT_VOLUME_CLAIMS, source.pvc.name, namespace)
        return _Answer(sources.CLAIM + decode(AnyObject, document).metadata.uid)

    async def _stream(self, cron: DataImportCron) -> _Answer:
        if not self._has_image_streams:
            raise NotPolled("this cluster serves no image streams")
        registry = sources.registry(cron)
        name, _, tag = (registry.image_stream or "" if registry is not None else "").partition(":")
        document = await self._get(IMAGE_STREAMS, name, cron.metadata.namespace)
        try:
            return _newest(decode(ImageStream, document), tag)
        except UnfitDocument as error:
            raise NotPolled(str(error)) from error

    async def _node(self, cron: DataImportCron, settings: Pollers) -> _Answer | None:
        pod = await self._pod(cron)
        if pod is None:
            await self._create(pollers.pulling_pod(cron, settings))
            return None
        if pod.metadata.is_being_deleted:
            return None
        answer = digest_of(pod)
        if answer is None and pod.status.phase == _FAILED:
            await delete(self._client, PODS, pod)
            raise NotPolled(f"pod {pod.metadata.name} failed before its image was started")
        return answer

    async def _pod(self, cron: DataImportCron) -> PullingPod | None:
        """The pod of `cron`. Raises NotPolled for one of its name that is not its own."""
        name = cdi_names.poller_pod(cron.metadata.name, cron.metadata.uid)
        try:
            document = await self._client.get(PODS, name, cron.metadata.namespace)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
        pod = decode(PullingPod, document)
        return pod if pod.metadata.is_controlled_by(cron.metadata) else _foreign(name)

    async def _create(self, document: JsonObject) -> None:
        try:
            await self._client.create(PODS, document)
        except StatusError as error:
            if error.code in (403, 422):
                raise NotPolled(f"the pod that has its node pull is refused: {error.message}") from error
            if not is_already_exists(error):
                raise

    async def _get(self, kind: ResourceType, name: str, namespace: str) -> JsonObject:
        try:
            return await self._client.get(kind, name, namespace)
        except StatusError as error:
            if is_not_found(error):
                raise NotPolled(f"{kind.kind} {namespace}/{name} does not exist") from error
            raise


def _foreign(name: str) -> PullingPod:
    raise NotPolled(f"pod {name} belongs to somebody else; delete it")


def is_due(cron: DataImportCron, now: datetime) -> bool:
    """Whether it is time to poll: never polled, or the time has come. Text that is no time counts as past."""
    try:
        return times.parse_time(cron.metadata.annotations.get(names.NEXT_CRON_TIME, "")) <= now
    except ValueError:
        return True


def _next(cron: DataImportCron, now: datetime, found: Mapping[str, str]) -> Polled:
    try:
        moment = next(times_after(cron.spec.schedule, now))
    except ScheduleError as error:
        logger.error(
            "DataImportCron %s/%s is not polled again, its schedule is invalid: %s",
            cron.metadata.namespace,
            cron.metadata.name,
            error,
        )
        return Polled(found)
    seconds = max(1.0, (moment - now).total_seconds())
    return Polled({**found, names.NEXT_CRON_TIME: times.format_time(moment)}, seconds)


def _newest(stream: ImageStream, tag: str) -> _Answer:
    """The newest image of a tag, of the first tag where none is named. Raises NotPolled."""
    found = next((each for each in stream.status.tags if not tag or each.tag == tag), None)
    if found is None or not found.items:
        raise NotPolled(f"ImageStream {stream.metadata.name} has no image of tag {tag!r}")
    newest = found.items[0]
    if not newest.image or not newest.docker_image_reference:
        raise NotPolled(f"ImageStream {stream.metadata.name} does not say where its image is")
    return _Answer(newest.image, newest.docker_image_reference)


def digest_of(pod: PullingPod) -> _Answer | None:
    """The digest of the image that a node has pulled; None while it pulls. Raises NotPolled."""
    found = next(
        (each for each in pod.status.container_statuses if each.name == pollers.IMAGE_CONTAINER), None
    )
    if found is None:
        return None
    waiting = found.state.waiting
    if waiting is not None and waiting.reason in ("ImagePullBackOff", "ErrImagePull", "InvalidImageName"):
        raise NotPolled(f"failed to pull image: {waiting.reason}")
    if found.state.terminated is None:
        return None
    digest = _IMAGE_DIGEST.search(found.image_id)
    if digest is None:
        raise NotPolled(f"the node reports the image as {found.image_id!r}, which has no digest")
    return _Answer(digest.group())
