"""The certificate that a process makes for itself."""

from __future__ import annotations

import ssl

import aiohttp

from kubecore.runtime import Health, serve_health
from kubecore.self_signed import self_signed_tls


async def test_the_port_of_health_speaks_tls_only() -> None:
    async with serve_health(Health(), 0, host="127.0.0.1", tls=self_signed_tls("bakery")) as port:
        anybody = ssl.create_default_context()
        anybody.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        async with aiohttp.ClientSession() as session:
            async with session.get(f"https://127.0.0.1:{port}/healthz", ssl=anybody) as answer:
                assert answer.status == 200
            try:
                await session.get(f"http://127.0.0.1:{port}/healthz")
            except aiohttp.ClientError:
                return
    raise AssertionError("the port answered in the clear")
