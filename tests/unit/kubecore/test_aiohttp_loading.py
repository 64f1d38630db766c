"""Loading aiohttp without the authorities that the machine trusts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

_LOADED = """
import os, ssl, sys
from kubecore.aiohttp_loading import load_aiohttp

load_aiohttp()
from aiohttp import connector

print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()), connector._SSL_CONTEXT_VERIFIED.verify_mode.name)
print(len(connector._SSL_CONTEXT_UNVERIFIED.get_ca_certs()))
print(len(ssl.create_default_context().get_ca_certs()))
print(os.environ.get("SSL_CERT_FILE"))
"""
_STARTED = """
import sys
from unittest import mock
{start}
from aiohttp import connector

print(len(connector._SSL_CONTEXT_VERIFIED.get_ca_certs()))
"""


def _run(script: str, authorities: Path) -> list[str]:
    environment = {"PYTHONPATH": "src", "SSL_CERT_FILE": str(authorities)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    path = tmp_path / "authorities.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    return path


def test_only_contexts_that_are_made_later_have_the_machines_authorities(authorities: Path) -> None:
    expected = ["0", "CERT_REQUIRED", "0", "1", str(authorities)]
    assert _run(_LOADED, authorities) == expected


@pytest.mark.parametrize(
    "start",
    [
        "from virtplane.cli.main import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass",
        "from virtplane.storage.cdi import starting\n"
        "sys.modules['virtplane.storage.cdi.importer.main'] = mock.Mock()\n"
        "with mock.patch.object(starting.first_process, 'end'): starting.importer()",
        "from kindling.cluster import components\n"
        "sys.modules['kindling.apiserver.main'] = mock.Mock()\n"
        "with mock.patch.multiple(components, name_process=mock.DEFAULT, processes=mock.DEFAULT, "
        "allow_open_files=mock.DEFAULT): components.run_api_server(None)",
    ],
    ids=["components", "importer", "API server"],
)
def test_processes_start_without_the_machines_authorities(start: str, authorities: Path) -> None:
    assert _run(_STARTED.format(start=start), authorities)[-1] == "0"
