"""cdi-source-update-poller: the digest of an image in a real registry, written into the cron."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator

import pytest
from tests.support.registry import PASSWORD, USER, server

from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.oci import ImageConfig, LayerWriter, write_archive
from virtplane.storage.cdi.poller.digest import NoDigest, image_digest
from virtplane.storage.cdi.poller.main import Options, poll, read_options

pytestmark = pytest.mark.feature("VMC-02")
KEYS = {"IMPORTER_ACCESS_KEY_ID": USER, "IMPORTER_SECRET_KEY": PASSWORD, "INSECURE_TLS": "true"}
NAMESPACE = "golden"


@pytest.fixture
def reference(tmp_path: pathlib.Path) -> Iterator[str]:
    """An image in a registry that wants a password."""
    with LayerWriter(tmp_path / "layer") as layer:
        (tmp_path / "file").write_bytes(b"x")
        layer.add_file("disk/disk.img", tmp_path / "file")
    write_archive(tmp_path / "image.tar", "example/disk:1", [layer.finished()], ImageConfig("test"))
    web = server(tmp_path / "image.tar")
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"docker://127.0.0.1:{web.server_address[1]}/disk:1"
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


def options(reference: str, **environment: str) -> Options:
    return read_options(["-ns", NAMESPACE, "-cron", "cron", "-url", reference], environment)


def cron(api: MemoryApi, **annotations: str) -> None:
    metadata: JsonObject = {"name": "cron", "namespace": NAMESPACE, "annotations": annotations}
    api.put(resources.DATA_IMPORT_CRONS, {"metadata": metadata, "spec": {}})


async def test_the_cron_is_told_the_digest_and_when_it_was_asked_for(reference: str) -> None:
    api = MemoryApi([resources.DATA_IMPORT_CRONS])
    cron(api, other="stays")
    asked = options(reference, **KEYS)
    async with api.client() as client:
        await poll(asked, client)
        found = (api.get(resources.DATA_IMPORT_CRONS, "cron", NAMESPACE) or {})["metadata"]["annotations"]
        assert found[names.SOURCE_DESIRED_DIGEST] == await image_digest(reference, asked.registry)
        assert found[names.SOURCE_DESIRED_DIGEST].startswith("sha256:")
        assert found[names.LAST_CRON_TIME].endswith("Z")
        assert found["other"] == "stays"


async def test_a_registry_that_refuses_changes_nothing(reference: str) -> None:
    api = MemoryApi([resources.DATA_IMPORT_CRONS])
    cron(api)
    async with api.client() as client:
        with pytest.raises(NoDigest):
            await poll(options(reference, **KEYS | {"IMPORTER_SECRET_KEY": "wrong"}), client)
    assert (api.get(resources.DATA_IMPORT_CRONS, "cron", NAMESPACE) or {})["metadata"]["annotations"] == {}


@pytest.mark.parametrize("url", ["oci-archive:/etc/passwd", "docker://--authfile", "dir:/"])
async def test_only_registries_are_asked(url: str) -> None:
    with pytest.raises(NoDigest, match="is no docker:// reference"):
        await image_digest(url, options("docker://registry.example/image").registry)


def test_certificates_and_proxies_come_as_the_controller_gives_them(tmp_path: pathlib.Path) -> None:
    arguments = ["-ns", "n", "-cron", "c", "-url", "docker://r.example/i", "-certdir", str(tmp_path)]
    found = read_options(arguments, {"https_proxy": "http://proxy.example:3128", "no_proxy": ""})
    assert found.registry.cert_folders == (tmp_path,)
    assert found.registry.proxies == (("https_proxy", "http://proxy.example:3128"),)
