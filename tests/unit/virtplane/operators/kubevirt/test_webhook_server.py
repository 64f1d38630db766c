"""Who may ask the operator's webhooks."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import trustme
from tests.support.waiting import until

from kubecore import resources
from kubecore.certificates import KeyPair
from kubecore.testing import MemoryApi
from virtplane.api import resources as api
from virtplane.operators.kubevirt.webhooks import KubeVirtReviews
from virtplane.operators.webhookserver import WebhookServer

_REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "r"}}


def _pair(leaf: trustme.LeafCert) -> KeyPair:
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return KeyPair(chain, leaf.private_key_pem.bytes())


@asynccontextmanager
async def _serving(proxy: trustme.CA, serving: trustme.CA) -> AsyncIterator[int]:
    server = MemoryApi([api.KUBEVIRTS])
    data = {
        "requestheader-client-ca-file": proxy.cert_pem.bytes().decode(),
        "requestheader-allowed-names": '["front-proxy-client"]',
    }
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    server.put(resources.CONFIG_MAPS, {"metadata": metadata, "data": data})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    async with server.client() as client:
        webhooks = WebhookServer(
            client, KubeVirtReviews(client).review, port, "127.0.0.1", requires_certificate=True
        )
        webhooks.use(_pair(serving.issue_cert("127.0.0.1")))
        task = asyncio.create_task(webhooks.run())
        try:
            await until(lambda: webhooks.is_serving)
            yield port
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_operators_webhooks_answer_the_api_server_alone(tmp_path: Path) -> None:
    proxy, serving = trustme.CA(), trustme.CA()
    known = proxy.issue_cert("proxy.test", common_name="front-proxy-client")
    stranger = proxy.issue_cert("other.test", common_name="somebody")
    async with _serving(proxy, serving) as port, aiohttp.ClientSession() as session:
        codes = []
        for leaf in (known, stranger, None):
            tls = ssl.create_default_context(cadata=serving.cert_pem.bytes().decode())
            if leaf is not None:
                pair = tmp_path / "client.pem"
                pair.write_bytes(leaf.private_key_and_cert_chain_pem.bytes())
                tls.load_cert_chain(pair)
            url = f"https://127.0.0.1:{port}/kubevirt-validate-create"
            async with session.post(url, json=_REVIEW, ssl=tls) as answer:
                codes.append(answer.status)
    assert codes == [200, 401, 401]
