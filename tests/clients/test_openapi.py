"""schemathesis over our own OpenAPI documents: no invented request meets a server error.

Every published operation of every group is called with invented parameters and bodies; bodies are invented
whole, or by replacing members of a valid object, since what is invented whole hardly ever passes validation.
Answers of success must match the published schema; refusals must be statuses.

Left out are the operations that only connect to somebody else (logs, exec, attach, port-forward, proxies of
nodes, pods and services): the documents do not have them, and what they answer is not the server's own.

``VIRTPLANE_TEST_EXAMPLES`` is the number of examples for each operation (default 1: what continuous
integration has time for); more than that are different in each run.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance
from tests.clients.live import Document, LiveCluster, running_cluster, wait_for

_DEFAULT_EXAMPLES = 1
EXAMPLES = int(os.environ.get("VIRTPLANE_TEST_EXAMPLES", str(_DEFAULT_EXAMPLES)))
SPACE = "sampled"
SAMPLE = "sample"
_WATCHES = 5 * EXAMPLES
"""How many watches there may be; each takes a second."""
_DRY = ("admissionregistration.k8s.io", "apiregistration.k8s.io")
"""Groups whose objects would make the server call webhooks and servers that are not there."""
_ANSWERED_500_BY_KUBERNETES = re.compile(
    "failed to create typed (patch|live) object |resourceVersion should not be set on objects to be created|"
    "strconv.ParseUint: parsing |unknown patch type: |.*does not contain declared merge key|"
    "expected a .*, but received a |merging lists cannot yet be specified in the patch|"
    "Internal error occurred: the spec replicas field |list element types are not identical: "
)
"""Refusals for which Kubernetes has no better code, either; clients know them by their code and text."""


@dataclass
class Bare:
    """A server without controllers that has one object of each kind."""

    cluster: LiveCluster
    session: requests.Session
    samples: dict[tuple[str, str], Document] = field(default_factory=dict)
    """Object by path of its collection and name."""
    watches: int = 0
    codes: Counter[int] = field(default_factory=Counter)

    def ensure(self, collection: str, sample: Document) -> None:
        """Make the object unless it is there."""
        self.cluster.request("POST", collection, sample)


def _samples() -> Iterator[Document]:
    text = Path(__file__).with_name("samples.yaml").read_text()
    for document in yaml.safe_load_all(text):
        yield {**document, "metadata": {"name": SAMPLE}}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """The server with its samples; nothing may have gone wrong unseen at the end."""
    with running_cluster(tmp_path_factory.mktemp("bare"), controllers=False) as cluster:
        session = requests.Session()
        session.trust_env = False
        session.verify, session.cert = str(cluster.ca_file), (str(cluster.cert_file), str(cluster.key_file))
        made = Bare(cluster, session)
        _fill(made)
        with session:
            yield made
        assert made.cluster.logged_failures() == []


def _fill(bare: Bare) -> None:
    request = bare.cluster.request
    request("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    request("POST", f"/api/v1/namespaces/{SPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    for sample in _samples():
        if sample["kind"] == "CustomResourceDefinition":
            sample["metadata"]["name"] = "samples.sample.example"
        if sample["kind"] == "APIService":
            sample["metadata"]["name"] = "v1.absent.example"
        if sample["kind"] == "FlowSchema":
            sample["metadata"]["name"] = SAMPLE
        version = sample["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found = wait_for("the kind is served", partial(_served, bare, root, sample["kind"]))
        assert found is not None
        middle = f"/namespaces/{SPACE}" if found["namespaced"] else ""
        collection = f"{root}{middle}/{found['name']}"
        status, answer = request("POST", collection, sample)
        # Events of both groups are the same objects.
        assert status == 201 or (status, sample["kind"]) == (409, "Event"), (sample, answer)
        bare.samples[f"{root}/{found['name']}", sample["metadata"]["name"]] = sample


def _served(bare: Bare, root: str, kind: str) -> Document | None:
    status, answer = bare.cluster.request("GET", root)
    resources = answer["resources"] if status == 200 else ()
    return next((one for one in resources if one["kind"] == kind and "/" not in one["name"]), None)


def _collection(path: str) -> str:
    """The path of an operation's kind, without namespace and object."""
    parts = [part for part in path.replace("/namespaces/{namespace}", "").split("/") if part]
    return "/" + "/".join(parts[: 3 if parts[0] == "api" else 4])


def _group(path: str) -> str:
    parts = path.split("/")
    return parts[2] if parts[1] == "apis" else ""


class Caller:
    """Calls one operation with what is invented for it."""

    def __init__(self, bare: Bare, schema: Any, operation: Any) -> None:
        self.bare = bare
        self.operation = operation
        self.path: str = operation.path
        self.method: str = operation.method.upper()
        found = [(key[1], value) for key, value in bare.samples.items() if key[0] == _collection(self.path)]
        self.name: str = SAMPLE
        self.sample: Document | None = None
        if found:
            self.name, self.sample = found[0]
        self.bodies: Any = st.none()
        if self.method == "PATCH":
            # A patch may be anything; what is in it should look like parts of the object.
            replacing = schema[self.path]["PUT"].as_strategy(generation_mode=GenerationMode.POSITIVE)
            self.bodies = replacing.map(lambda case: case.body)

    def run(self, mode: GenerationMode) -> None:
        """All examples. Raises what schemathesis finds."""

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=EXAMPLES <= _DEFAULT_EXAMPLES,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=self.operation.as_strategy(generation_mode=mode), data=st.data())
        def call(case: Any, data: Any) -> None:
            self._call(case, data, mode)

        call()

    def _call(self, case: Any, data: Any, mode: GenerationMode) -> None:
        positive = mode is GenerationMode.POSITIVE
        choose = data.draw
        self._aim(case, choose(st.integers(0, 9)))
        if positive and self.method in ("POST", "PUT"):
            case.body = self._body(case.body, choose)
        elif positive and self.method == "PATCH":
            self._patch(case, choose)
        response = case.call(
            base_url=self.bare.cluster.url,
            session=self.bare.session,
            verify=self.bare.session.verify,
            timeout=20,
        )
        self.bare.codes[response.status_code] += 1
        if response.status_code >= 400:
            self._check_refusal(response)
        elif positive and not (case.query or {}).get("watch") and self._is_described(response):
            self._check_answer(case, response)

    def _check_answer(self, case: Any, response: Any) -> None:
        """Against the description, but for the nulls of unset times and lists, which Kubernetes' lack."""
        answer = json.loads(response.content)
        response.content = json.dumps(_without_nulls(answer)).encode()
        try:
            checks = [content_type_conformance, response_schema_conformance]
            case.validate_response(response, checks=checks)
        except FailureGroup as group:
            missing = {f'"{name}" is a required property' for name in _null_members(answer)}
            if not all(any(text in failure.message for text in missing) for failure in group.exceptions):
                raise

    def _check_refusal(self, response: Any) -> None:
        status = json.loads(response.content)
        told = (status["kind"], status["status"], status["code"])
        assert told == ("Status", "Failure", response.status_code), status
        assert status["message"], status
        expected = response.status_code < 500 or _ANSWERED_500_BY_KUBERNETES.match(status["message"])
        assert expected, (self.operation.label, response.request.url, response.request.body, status)

    def _is_described(self, response: Any) -> bool:
        """Not an object that is still there after its deletion; Kubernetes' documents do not say it."""
        schemas = json.dumps(self.operation.definition.raw["responses"]["200"])
        kind = json.loads(response.content).get("kind")
        return self.method != "DELETE" or kind == "Status" or "meta.v1.Status" not in schemas

    def _aim(self, case: Any, choice: int) -> None:
        """Mostly at the sample, which exists."""
        if "namespace" in case.path_parameters and choice != 9:
            case.path_parameters["namespace"] = SPACE
        if "name" in case.path_parameters and choice not in (8, 9):
            case.path_parameters["name"] = self.name
            if self.sample is not None:
                self._restore()
        query = dict(case.query or {})
        if choice % 2 and self.method != "GET":
            query = {}
        if query.get("watch"):
            self.bare.watches += 1
            query["timeoutSeconds"] = 1
            if self.bare.watches > _WATCHES:
                del query["watch"]
        if self.method != "GET" and _group(self.path) in _DRY:
            query["dryRun"] = "All"
        case.query = query

    def _restore(self) -> None:
        collection = _collection(self.path)
        if "{namespace}" in self.path:
            root, _, plural = collection.rpartition("/")
            collection = f"{root}/namespaces/{SPACE}/{plural}"
        self.bare.ensure(collection, self.sample or {})

    def _body(self, invented: Any, choose: Any) -> Any:
        """The sample with some members replaced by what was invented, or that as it is."""
        if self.sample is None or not isinstance(invented, dict) or choose(st.integers(0, 4)) == 0:
            return invented
        name = self.name if self.method == "PUT" else f"made-{choose(st.integers(0, 99999))}"
        body = _mixed(self.sample, invented, choose)
        body["metadata"] = {**body.get("metadata", {}), "name": name}
        return body

    def _patch(self, case: Any, choose: Any) -> None:
        invented = choose(self.bodies)
        parts = {key: value for key, value in invented.items() if key not in ("apiVersion", "kind")}
        kind = choose(st.sampled_from(list(self.operation.definition.raw["requestBody"]["content"])))
        case.media_type = kind
        case.headers = {**(case.headers or {}), "Content-Type": kind}
        if kind == "application/json-patch+json":
            operations = choose(st.lists(st.sampled_from(("add", "replace", "remove", "test")), min_size=1))
            keys = list(parts) or ["spec"]
            case.body = [
                {"op": op, "path": f"/{keys[index % len(keys)]}", "value": parts.get(keys[index % len(keys)])}
                for index, op in enumerate(operations)
            ]
        elif kind == "application/apply-patch+yaml":
            sample = self.sample or invented
            mixed = _mixed(sample, parts, choose)
            mixed["metadata"] = {"name": self.name}
            case.body = {**mixed, "apiVersion": sample.get("apiVersion"), "kind": sample.get("kind")}
            case.query = {**case.query, "fieldManager": "schemathesis"}
        else:
            case.body = parts


def _mixed(sample: Document, invented: Document, choose: Any) -> Document:
    """A copy of the sample that takes members, or members of members, from what was invented."""
    body = copy.deepcopy(sample)
    for key, value in invented.items():
        if key in ("apiVersion", "kind"):
            continue
        own = body.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            for inner in choose(st.lists(st.sampled_from(list(value)), max_size=3)) if value else ():
                own[inner] = value[inner]
        elif choose(st.booleans()):
            body[key] = value
    return body


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


def _null_members(value: Any) -> Iterator[str]:
    """The names of members that are null."""
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        if member is None and isinstance(key, str):
            yield key
        elif isinstance(member, dict | list):
            yield from _null_members(member)


def _documents(bare: Bare) -> dict[str, Any]:
    """The schemas by group and version."""
    index = bare.cluster.request("GET", "/openapi/v3")[1]["paths"]
    return {
        name: schemathesis.openapi.from_dict(bare.cluster.request("GET", entry["serverRelativeURL"])[1])
        for name, entry in sorted(index.items())
    }


_READS, _WRITES = ("GET",), ("POST", "PUT", "PATCH", "DELETE")


def _call_all(bare: Bare, mode: GenerationMode, methods: tuple[str, ...], subtests: pytest.Subtests) -> int:
    called = 0
    for name, schema in _documents(bare).items():
        for found in schema.get_all_operations():
            operation = found.ok()
            if operation.method.upper() not in methods:
                continue
            called += 1
            with subtests.test(msg=f"{name}: {operation.label}"):
                Caller(bare, schema, operation).run(mode)
    return called


@pytest.mark.timeout(180 if EXAMPLES <= _DEFAULT_EXAMPLES else 3600)
def test_no_invented_request_meets_a_server_error(bare: Bare, subtests: pytest.Subtests) -> None:
    called = _call_all(bare, GenerationMode.POSITIVE, _READS + _WRITES, subtests)
    assert called > 500
    succeeded = sum(count for code, count in bare.codes.items() if code < 300)
    assert succeeded > called / 5, bare.codes


@pytest.mark.timeout(180 if EXAMPLES <= _DEFAULT_EXAMPLES else 3600)
def test_no_read_that_breaks_its_description_meets_a_server_error(
    bare: Bare, subtests: pytest.Subtests
) -> None:
    assert _call_all(bare, GenerationMode.NEGATIVE, _READS, subtests) > 150


@pytest.mark.skipif(EXAMPLES <= _DEFAULT_EXAMPLES, reason="inventing what breaks schemas takes minutes")
@pytest.mark.timeout(3600)
def test_no_write_that_breaks_its_description_meets_a_server_error(
    bare: Bare, subtests: pytest.Subtests
) -> None:
    assert _call_all(bare, GenerationMode.NEGATIVE, _WRITES, subtests) > 200


_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 2**64, 1.5, 1e300, "", "-", "a b", "0", "\x00", "\ud7ff", "é" * 300),
    *([], {}, [None], [[]], {"": None}, {"a": {"b": []}}, [{}, {}], ["a", "a"], {"$patch": "delete"}),
)


def _places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a value of a document can be replaced."""
    members = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in members:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _spoiled(document: Document, place: tuple[str | int, ...], value: Any) -> Document:
    made = copy.deepcopy(document)
    node: Any = made
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    return made


_PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml", "json-patch+json")


@pytest.mark.timeout(180 if EXAMPLES <= _DEFAULT_EXAMPLES else 3600)
def test_no_value_of_the_wrong_form_meets_a_server_error(bare: Bare, subtests: pytest.Subtests) -> None:
    """Every value of every sample replaced by odd ones, in creations, updates and all kinds of patches."""
    chance = random.Random(0)
    for (collection, name), sample in bare.samples.items():
        root, _, plural = collection.rpartition("/")
        spaced = bare.cluster.request("GET", f"{root}/namespaces/{SPACE}/{plural}")[0] == 200
        path = f"{root}/namespaces/{SPACE}/{plural}" if spaced else collection
        with subtests.test(msg=path):
            for place in _places(sample):
                for value in chance.sample(_ODD, min(len(_ODD), 2 * EXAMPLES)):
                    body = _spoiled(sample, place, value)
                    _send_all(bare, path, name, body, place, chance)


def _send_all(
    bare: Bare, path: str, name: str, body: Document, place: tuple[str | int, ...], chance: random.Random
) -> None:
    dry = "?dryRun=All&fieldManager=odd"
    calls: list[tuple[str, str, Any, str]] = [
        ("POST", path, body, "json"),
        ("PUT", f"{path}/{name}", body, "json"),
    ]
    kind = chance.choice(_PATCHES)
    patch: Any = body
    if kind == "json-patch+json":
        pointer = "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in place)
        value: Any = body
        for key in place:
            value = value[key]
        patch = [{"op": "replace", "path": pointer, "value": value}]
    calls.append(("PATCH", f"{path}/{name}", patch, kind))
    for method, target, sent, form in calls:
        answer = bare.session.request(
            method,
            bare.cluster.url + target + dry,
            data=json.dumps(sent),
            headers={"Content-Type": f"application/{form}"},
            timeout=20,
        )
        if answer.status_code >= 500:
            message = answer.json()["message"]
            assert _ANSWERED_500_BY_KUBERNETES.match(message), (method, target, form, sent, message)
