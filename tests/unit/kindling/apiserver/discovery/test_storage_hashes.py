"""Hashes of the form in which discovery says that objects are stored: those of Kubernetes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from typing import Any

import pytest
from tests.support.apiserver import generic_definition

from kindling.apiserver.discovery.documents import resource_list
from kubecore import resources


def hash_of(definition: Any) -> str:
    kind = definition.resource
    entry = resource_list(kind.group, kind.version, [definition])["resources"][0]
    return str(entry["storageVersionHash"])


@pytest.mark.parametrize(
    ("resource", "expected"), [(resources.PODS, "xPOwRZ+Yhw8="), (resources.DEPLOYMENTS, "8aSe+NMegvE=")]
)
def test_built_in_kinds_have_the_known_hashes(resource: Any, expected: str) -> None:
    assert hash_of(generic_definition(resource)) == expected


def test_custom_kinds_are_hashed_by_their_group_stored_version_and_kind() -> None:
    made = generic_definition(dataclasses.replace(resources.DEPLOYMENTS, group="example.com", kind="Thing"))
    made = dataclasses.replace(
        made, custom=True, storage_prefix="things.example.com", storage_version="example.com/v2"
    )
    digest = hashlib.sha256(b"example.com/v2/Thing").digest()
    assert hash_of(made) == base64.b64encode(digest[:8]).decode()
