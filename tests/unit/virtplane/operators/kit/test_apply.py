"""What is written, and what is left alone."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.support.bakery import BAKERY

from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.operators.kit.apply import Applier, contains, marked, needs_write, replacement

SERVICE: JsonObject = {
    "kind": "Service",
    "metadata": {"name": "a", "labels": {"x": "1"}},
    "spec": {"selector": {"a": "b"}, "ports": [{"port": 443}]},
}

MARKED = marked(SERVICE, BAKERY.digest_annotation)


def live(document: JsonObject) -> JsonObject:
    """What an API server makes of it."""
    return {
        **document,
        "metadata": {**document["metadata"], "uid": "u", "resourceVersion": "7"},
        "spec": {**document["spec"], "clusterIP": "10.0.0.1", "type": "ClusterIP"},
    }


def test_what_the_server_fills_in_is_no_difference() -> None:
    assert not needs_write(live(MARKED), MARKED)


def test_a_changed_field_is_written_again() -> None:
    changed = live(MARKED)
    changed["spec"]["selector"] = {"a": "c"}
    assert needs_write(changed, MARKED)


def test_a_field_that_is_wanted_no_longer_is_written_away() -> None:
    before = {**SERVICE, "spec": {**SERVICE["spec"], "externalName": "x"}}
    assert needs_write(live(marked(before, BAKERY.digest_annotation)), MARKED)
    assert "externalName" not in replacement(live(marked(before, BAKERY.digest_annotation)), MARKED)["spec"]


def test_addresses_and_foreign_labels_survive_a_write() -> None:
    found = live(MARKED)
    found["metadata"]["labels"] = {"x": "2", "theirs": "y"}
    written = replacement(found, MARKED)
    assert written["spec"]["clusterIP"] == "10.0.0.1"
    assert written["metadata"]["labels"] == {"x": "1", "theirs": "y"}
    assert written["metadata"]["resourceVersion"] == "7"


def test_a_new_owner_takes_the_place_of_the_former_one() -> None:
    former, owner = ({"kind": "Baker", "name": "b", "uid": uid} for uid in ("old", "new"))
    found = live(MARKED)
    found["metadata"] |= {"namespace": "bread", "ownerReferences": [former]}
    assert replacement(found, MARKED)["metadata"]["ownerReferences"] == [former]
    wanted = {**MARKED, "metadata": {**MARKED["metadata"], "ownerReferences": [owner]}}
    assert needs_write(found, wanted)
    assert replacement(found, wanted)["metadata"]["ownerReferences"] == [owner]


def test_what_is_in_no_namespace_loses_an_owner_that_nobody_wants() -> None:
    found = live(MARKED)
    found["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "c", "uid": "u"}]
    assert "ownerReferences" not in replacement(found, MARKED)["metadata"]


def test_lists_differ_by_length_and_objects_by_missing_members() -> None:
    assert contains({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]})
    assert not contains({"a": [1, 2]}, {"a": [1]})
    assert contains({}, {"a": False, "b": [], "c": ""})


class Api:
    """Creates whatever is not refused; says how many creations were under way together at most."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.created: list[str] = []
        self.together = self._now = 0

    async def get(self, *_: object) -> JsonObject:
        raise StatusError(404, "NotFound", "no such object")

    async def create(self, _resource: ResourceType, obj: JsonObject) -> None:
        self._now += 1
        self.together = max(self.together, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        if obj["metadata"]["name"] == self.refused:
            raise StatusError(403, "Forbidden", "no")
        self.created.append(obj["metadata"]["name"])


def _services(count: int) -> list[JsonObject]:
    return [{**SERVICE, "metadata": {"name": f"s{number}", "namespace": "ns"}} for number in range(count)]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_all_objects_are_written_no_more_than_wanted_at_a_time(at_once: int) -> None:
    api = Api()
    written = await Applier(cast("Client", api), BAKERY).apply_all(_services(7), at_once=at_once)
    assert written == 7
    assert api.together == at_once
    assert sorted(api.created) == [f"s{number}" for number in range(7)]


async def test_an_error_in_order_keeps_later_objects_from_being_written() -> None:
    api = Api(refused="s1")
    with pytest.raises(StatusError, match="no"):
        await Applier(cast("Client", api), BAKERY).apply_all(_services(3))
    assert api.created == ["s0"]


LOAVES = ResourceType("bakery.example", "v1", "loaves", "Loaf")


async def test_kinds_of_the_product_are_written_beside_the_built_in_ones() -> None:
    api = Api()
    loaf = {"kind": "Loaf", "metadata": {"name": "rye", "namespace": "ns"}}
    assert await Applier(cast("Client", api), BAKERY, kinds=[LOAVES]).apply(loaf)
    assert api.created == ["rye"]
    with pytest.raises(KeyError, match="Loaf"):
        await Applier(cast("Client", api), BAKERY).apply(loaf)
