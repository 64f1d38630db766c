"""The objects that offer a disk: what CDI says to them, and what machines infer from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api import cdi_labels
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.image import datasource
from virtplane.image.debian import disk
from virtplane.operators import kubevirt
from virtplane.storage.cdi.apiserver.data_volumes import spec_causes
from virtplane.storage.cdi.apiserver.decoding import misfit

_HTTPS = datasource.http_source(
    "https://images.example.com/debian.qcow2", checksum="sha256:" + "0" * 64, cert_config_map="authority"
)
_SOURCES = [datasource.UPLOAD, datasource.http_source("http://images.example.com/debian.qcow2"), _HTTPS]


@pytest.mark.feature("NEW-10")
@pytest.mark.parametrize("source", _SOURCES)
def test_cdi_accepts_the_data_volume(source: JsonObject) -> None:
    document = datasource.data_volume("images", source, disk.DISK_BYTES)
    assert misfit(DataVolume, document) == ""
    data_volume = decode(DataVolume, document)
    assert spec_causes(data_volume.spec, "spec") == []
    assert data_volume.spec.storage is not None
    assert data_volume.spec.storage.resources is not None
    assert data_volume.spec.storage.resources.requests == {"storage": str(disk.DISK_BYTES)}
    assert data_volume.spec.storage.storage_class_name is None, "the default class is taken"
    assert document["metadata"]["annotations"] == {cdi_labels.IMMEDIATE_BINDING: "true"}


def test_an_import_names_the_certificates_and_the_checksum_only_where_there_are_some() -> None:
    assert _SOURCES[1] == {"http": {"url": "http://images.example.com/debian.qcow2"}}
    assert _HTTPS["http"]["certConfigMap"] == "authority"
    assert _HTTPS["http"]["checksum"].startswith("sha256:")


@pytest.mark.feature("NEW-10")
def test_the_data_source_leads_to_the_claim_of_the_data_volume() -> None:
    volume = datasource.data_volume(
        "images", datasource.UPLOAD, 1 << 30, name="debian-2", storage_class="fast"
    )
    document = datasource.data_source("images", claim="debian-2")
    assert misfit(DataSource, document) == ""
    pvc = decode(DataSource, document).spec.source.pvc
    assert pvc is not None
    assert (pvc.namespace, pvc.name) == (volume["metadata"]["namespace"], volume["metadata"]["name"])
    assert volume["spec"]["storage"]["storageClassName"] == "fast"
    assert document["metadata"]["name"] == "debian", "machines name it, whichever claim it leads to"


@pytest.mark.feature("NEW-10")
def test_machines_infer_an_instance_type_and_a_preference_that_every_cluster_has() -> None:
    data = Path(kubevirt.__file__).parent / "data"
    common = json.loads((data / "common_instancetypes.json").read_text())
    volume = datasource.data_volume("images", datasource.UPLOAD, 1 << 30)
    for document in (volume, datasource.data_source("images")):
        found = document["metadata"]["labels"]
        assert found["instancetype.kubevirt.io/default-instancetype"] in common["instancetypes"]
        assert found["instancetype.kubevirt.io/default-preference"] in common["preferences"]
