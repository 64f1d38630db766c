"""Sources of imports, as the annotations by which a claim names its source."""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api import cdi_labels as names
from virtplane.api.cdi_v1beta1.data_volume import DataVolumeSource, DataVolumeSourceHTTP, DataVolumeSourceVDDK
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourceImageIO, DataVolumeSourceRegistry
from virtplane.api.cdi_v1beta1.volume_sources import ImportSource

Source = ImportSource | DataVolumeSource

HTTP = "http"
S3 = "s3"
GCS = "gcs"
GLANCE = "glance"
REGISTRY = "registry"
IMAGEIO = "imageio"
VDDK = "vddk"
NONE = "none"
"""An empty disk."""
KINDS = frozenset({HTTP, S3, GCS, GLANCE, REGISTRY, IMAGEIO, VDDK, NONE})


def import_annotations(source: Source | None) -> dict[str, str]:
    """The annotations of a claim that is filled from `source`; none for what is not imported."""
    found = dict(_annotations(source)) if source is not None else {}
    return {name: value for name, value in found.items() if value is not None}


def _annotations(source: Source) -> Iterator[tuple[str, str | None]]:
    if source.http is not None:
        yield from _http(source.http)
    elif source.s3 is not None:
        yield from _fetched(S3, source.s3.url, source.s3.secret_ref, source.s3.cert_config_map)
    elif source.gcs is not None:
        yield from _fetched(GCS, source.gcs.url, source.gcs.secret_ref)
    elif source.registry is not None:
        yield from _registry(source.registry)
    elif source.imageio is not None:
        yield from _imageio(source.imageio)
    elif source.vddk is not None:
        yield from _vddk(source.vddk)
    elif source.blank is not None:
        yield names.IMPORT_SOURCE, NONE


def _fetched(
    kind: str, url: str | None, secret: str | None, certificates: str | None = None
) -> Iterator[tuple[str, str | None]]:
    yield names.IMPORT_SOURCE, kind
    yield names.IMPORT_ENDPOINT, url
    yield names.IMPORT_SECRET, secret or None
    yield names.IMPORT_CERT_CONFIG_MAP, certificates or None


def _http(http: DataVolumeSourceHTTP) -> Iterator[tuple[str, str | None]]:
    yield from _fetched(HTTP, http.url, http.secret_ref, http.cert_config_map)
    yield names.IMPORT_CHECKSUM, http.checksum or None
    yield names.IMPORT_INSECURE, "true" if http.insecure_skip_verify else None
    for number, header in enumerate(http.extra_headers):
        yield f"{names.IMPORT_EXTRA_HEADERS_PREFIX}{number}", header
    for number, secret in enumerate(http.secret_extra_headers):
        yield f"{names.IMPORT_SECRET_EXTRA_HEADERS_PREFIX}{number}", secret


def _registry(registry: DataVolumeSourceRegistry) -> Iterator[tuple[str, str | None]]:
    if registry.url:
        yield from _fetched(REGISTRY, registry.url, registry.secret_ref, registry.cert_config_map)
    else:
        yield from _fetched(REGISTRY, registry.image_stream, registry.secret_ref, registry.cert_config_map)
        yield names.IMPORT_REGISTRY_IMAGE_STREAM, "true"
    yield names.IMPORT_REGISTRY_METHOD, registry.pull_method or None
    yield (
        names.IMPORT_REGISTRY_ARCHITECTURE,
        (registry.platform.architecture or None) if registry.platform is not None else None,
    )


def _imageio(imageio: DataVolumeSourceImageIO) -> Iterator[tuple[str, str | None]]:
    yield from _fetched(IMAGEIO, imageio.url, imageio.secret_ref, imageio.cert_config_map)
    yield names.IMPORT_DISK_ID, imageio.disk_id
    yield names.IMPORT_INSECURE, "true" if imageio.insecure_skip_verify else None


def _vddk(vddk: DataVolumeSourceVDDK) -> Iterator[tuple[str, str | None]]:
    yield from _fetched(VDDK, vddk.url, vddk.secret_ref, vddk.cert_config_map)
    yield names.IMPORT_BACKING_FILE, vddk.backing_file
    yield names.IMPORT_UUID, vddk.uuid
    yield names.IMPORT_VDDK_THUMBPRINT, vddk.thumbprint
    yield names.POD_VDDK_IMAGE, vddk.init_image_url or None
    yield names.POD_VDDK_EXTRA_ARGS, vddk.extra_args or None
