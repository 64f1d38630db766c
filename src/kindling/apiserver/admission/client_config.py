"""Where a webhook is: validation of ``clientConfig``, shared by admission and conversion webhooks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import urlsplit

from kubecore.json import JsonObject
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, invalid, required

_URL_FORM = "; desired format: https://host[/path]"


def validate_client_config(config: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """Exactly one of a URL and a service, each well-formed."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(str(url), path.child("url"))
    elif isinstance(service, dict):
        yield from _service(service, path.child("service"))
    bundle = config.get("caBundle")
    if bundle and not _is_certificate(str(bundle)):
        yield invalid(
            path.child("caBundle"),
            bundle,
            "unable to load root certificates: unable to parse bytes as PEM block",
        )


def _is_certificate(bundle: str) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in base64.b64decode(bundle)
    except (binascii.Error, ValueError):
        return False


def _url(url: str, path: FieldPath) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")
    if not parts.hostname:
        yield invalid(path, parts.netloc, f"host must be specified{_URL_FORM}")
    if parts.username is not None:
        yield invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _service(service: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if not service.get("name"):
        yield required(path.child("name"), "service name is required")
    if not service.get("namespace"):
        yield required(path.child("namespace"), "service namespace is required")
    port = service.get("port")
    if port is not None and (messages := names.is_port_number(int(port))):
        yield invalid(path.child("port"), port, "port is not valid: " + ",".join(messages))
    url_path = service.get("path")
    if url_path is None:
        return
    path = path.child("path")
    if not str(url_path).startswith("/"):
        yield invalid(path, url_path, "must start with a '/'")
        return
    if url_path == "/":
        return
    steps = str(url_path)[1:].removesuffix("/").split("/")
    for index, step in enumerate(steps):
        if not step:
            yield invalid(path, url_path, f"segment[{index}] may not be empty")
            continue
        for message in names.is_dns1123_subdomain(step):
            yield invalid(path, url_path, f"segment[{index}]: {message}")
