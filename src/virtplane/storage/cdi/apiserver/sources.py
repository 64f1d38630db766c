"""Sources of content: exactly one, and one that can be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from virtplane.api.cdi_v1beta1.data_volume import (
    DataVolumeSource,
    DataVolumeSourceHTTP,
    DataVolumeSourceVDDK,
)
from virtplane.api.cdi_v1beta1.data_volume_template import (
    DataVolumeSourceImageIO,
    DataVolumeSourcePVC,
    DataVolumeSourceRegistry,
    DataVolumeSourceSnapshot,
)
from virtplane.api.cdi_v1beta1.volume_sources import ImportSource
from virtplane.serving.responses import Cause
from virtplane.storage.cdi.apiserver.addresses import checksum_problem, registry_problem, source_problem

_CONTENT_TYPES = ("kubevirt", "archive")


def source_causes(
    source: DataVolumeSource | ImportSource | None, what: str, content_type: str, path: str
) -> list[Cause]:
    """What is wrong with the source of a spec at `path`; `what` it is a source of."""
    given = _given(source)
    if not given:
        return [Cause(f"Missing {what} source", f"{path}.source")]
    if len(given) > 1:
        return [Cause(f"Multiple {what} sources", f"{path}.source")]
    ((name, value),) = given.items()
    if name in _CONTENT_CHECKS:
        found = _CONTENT_CHECKS[name](content_type, path)
        if found:
            return found
    check = _CHECKS.get(name)
    return check(value, path) if check else []


def content_type_causes(content_type: str, path: str) -> list[Cause]:
    """What is wrong with a content type."""
    if not content_type or content_type in _CONTENT_TYPES:
        return []
    return [Cause(f"ContentType not one of: {', '.join(_CONTENT_TYPES)}", f"{path}.contentType")]


def _given(source: DataVolumeSource | ImportSource | None) -> Mapping[str, Any]:
    if source is None:
        return {}
    members = {each.name: getattr(source, each.name) for each in msgspec.structs.fields(source)}
    return {name: value for name, value in members.items() if value is not None}


def _blank_content(content_type: str, path: str) -> list[Cause]:
    if content_type != "archive":
        return []
    return [Cause("SourceType cannot be blank and the contentType be archive", f"{path}.contentType")]


def _registry_content(content_type: str, path: str) -> list[Cause]:
    if content_type in ("", "kubevirt"):
        return []
    return [Cause("ContentType must be kubevirt when Source is Registry", f"{path}.contentType")]


def _url(name: str) -> Callable[[Any, str], list[Cause]]:
    def check(source: Any, path: str) -> list[Cause]:
        problem = source_problem(source.url or "")
        return [Cause(f"{path}.source {problem}", f"{path}.source.{name}.url")] if problem else []

    return check


def _http(source: DataVolumeSourceHTTP, path: str) -> list[Cause]:
    causes = _url("HTTP")(source, path)
    problem = checksum_problem(source.checksum) if source.checksum else ""
    if problem:
        causes.append(Cause(f"Invalid checksum format: {problem}", f"{path}.source.HTTP.checksum"))
    return causes


def _imageio(source: DataVolumeSourceImageIO, path: str) -> list[Cause]:
    field = f"{path}.source.Imageio"
    if not source.secret_ref or not source.disk_id:
        return [Cause(f"{field} source Imageio is not valid", field)]
    if not source.cert_config_map and not source.insecure_skip_verify:
        return [Cause(f"{field} source Imageio requires CertConfigMap or InsecureSkipVerify", field)]
    return _url("ImageIO")(source, path)


def _vddk(source: DataVolumeSourceVDDK, path: str) -> list[Cause]:
    if source.secret_ref and source.uuid and source.backing_file and source.thumbprint:
        return _url("VDDK")(source, path)
    return [Cause(f"{path}.source.VDDK source VDDK is not valid", f"{path}.source.VDDK")]


def _registry(source: DataVolumeSourceRegistry, path: str) -> list[Cause]:
    field = f"{path}.source.Registry"
    if (source.url is None) == (source.image_stream is None):
        return [Cause("Source registry should have either URL or ImageStream", field)]
    problem = registry_problem(source.url) if source.url is not None else ""
    if problem:
        return [Cause(problem, f"{field}.URL")]
    problem = _pull_problem(source)
    return [Cause(problem, f"{field}.importMethod")] if problem else []


def _pull_problem(source: DataVolumeSourceRegistry) -> str:
    if source.pull_method not in (None, "pod", "node"):
        return f'ImportMethod {source.pull_method} is neither pod, node or ""'
    if source.image_stream == "":
        return "Source registry ImageStream is not valid"
    if source.image_stream is not None and source.pull_method != "node":
        return "Source registry ImageStream is supported only with node pull import method"
    return ""


def _claim(source: DataVolumeSourcePVC, path: str) -> list[Cause]:
    if source.namespace and source.name:
        return []
    return [Cause(f"{path}.source.PVC source PVC is not valid", f"{path}.source.PVC")]


def _snapshot(source: DataVolumeSourceSnapshot, path: str) -> list[Cause]:
    if source.namespace and source.name:
        return []
    return [Cause(f"{path}.source.Snapshot source snapshot is not valid", f"{path}.source.Snapshot")]


_CONTENT_CHECKS: Mapping[str, Callable[[str, str], list[Cause]]] = {
    "blank": _blank_content,
    "registry": _registry_content,
}
_CHECKS: Mapping[str, Callable[[Any, str], list[Cause]]] = {
    "gcs": _url("GCS"),
    "http": _http,
    "imageio": _imageio,
    "pvc": _claim,
    "registry": _registry,
    "s3": _url("S3"),
    "snapshot": _snapshot,
    "vddk": _vddk,
}
