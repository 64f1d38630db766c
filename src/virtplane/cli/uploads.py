"""Where clients on this machine send uploads: the embedded cluster has no Ingress that would tell."""

from __future__ import annotations

import ipaddress

from kubecore import errors
from kubecore.client import Client
from kubecore.json import get_str
from kubecore.resources import CONFIG_MAPS, SERVICES
from virtplane.api import cdi_names
from virtplane.api.resources import CDIS
from virtplane.cli.virtctl.uploading.uploadproxy import Proxy
from virtplane.operators.cdi.certificates import BUNDLE_KEY
from virtplane.operators.kubevirt.manifests import CDI_NAME

_FIELD_MANAGER = "virtplane-up"


async def offer(client: Client, namespace: str) -> None:
    """Name the upload proxy's address in the CDI object, unless somebody else has named another.

    The machine reaches addresses of services, so ``virtctl image-upload`` needs no ``--uploadproxy-url``.
    Where data volumes are not installed, nothing is changed. Raises StatusError, ConnectionFailed.
    """
    with errors.ignoring(404, 409):
        await client.get(CDIS, CDI_NAME)
        service = await client.get(SERVICES, cdi_names.UPLOAD_PROXY, namespace)
        config = {"uploadProxyURLOverride": _url(get_str(service, "spec", "clusterIP"))}
        document = {
            "apiVersion": CDIS.api_version,
            "kind": CDIS.kind,
            "metadata": {"name": CDI_NAME},
            "spec": {"config": config},
        }
        # Not by force: a conflict means that an administrator has set it.
        await client.patch(CDIS, CDI_NAME, document, type="apply", field_manager=_FIELD_MANAGER)


async def proxy(client: Client, namespace: str) -> Proxy:
    """The upload proxy at the address of its service, with the authority that CDI's operator has published
    and the name that its certificates have. Raises StatusError, ConnectionFailed.
    """
    service = await client.get(SERVICES, cdi_names.UPLOAD_PROXY, namespace)
    bundle = await client.get(CONFIG_MAPS, cdi_names.UPLOAD_PROXY_BUNDLE, namespace)
    return Proxy(
        _url(get_str(service, "spec", "clusterIP")),
        authority=get_str(bundle, "data", BUNDLE_KEY),
        server_name=f"{cdi_names.UPLOAD_PROXY}.{namespace}.svc",
    )


def _url(address: str) -> str:
    is_v6 = ipaddress.ip_address(address).version == 6
    return f"https://[{address}]" if is_v6 else f"https://{address}"
