"""Images that are there, are pulled, or cannot be: reasons, events and messages of a kubelet."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from kindling.node.images.manager import (
    Credential,
    ImageManager,
    ImageProblem,
    Wanted,
    credentials_of,
    matching_auth,
)
from kindling.node.images.references import normalize, problem
from kindling.node.runtime.interface import Image, RuntimeFailure

IMAGE = Image("sha256:1", ("docker.io/library/x:1",), (), 7)
NOT_FOUND = "rpc error: code = NotFound desc = no such image"


class Runtime:
    """Images by name; pulling fails until `has` says otherwise."""

    def __init__(self) -> None:
        self.has = False
        self.present: set[str] = set()
        self.pulls: list[tuple[str, Any]] = []
        self.broken = False

    async def image_status(self, reference: str) -> Image | None:
        if self.broken:
            raise RuntimeFailure("disk on fire", "INTERNAL")
        return IMAGE if reference in self.present else None

    async def pull_image(self, reference: str, auth: Any = None) -> str:
        self.pulls.append((reference, auth))
        if not self.has:
            raise RuntimeFailure("no such image", "NOT_FOUND")
        self.present.add(reference)
        return IMAGE.id


class Images:
    """An image manager whose clock stands, and what it announced."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.now = 0.0
        runtime: Any = self.runtime
        self.manager = ImageManager(runtime, lambda: self.now)
        self.events: list[tuple[str, str, str]] = []

    async def ensure(self, reference: str = "x:1", policy: str = "IfNotPresent", pod: str = "u") -> Image:
        return await self.manager.ensure(Wanted(pod, reference, policy), self._record_event)

    def _record_event(self, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    async def problem(self, *arguments: str) -> tuple[str, str]:
        with pytest.raises(ImageProblem) as caught:
            await self.ensure(*arguments)
        return caught.value.reason, str(caught.value)


async def test_a_failed_pull_backs_off_and_tells_the_last_error_as_a_kubelet_does() -> None:
    images = Images()
    assert await images.problem() == ("ErrImagePull", NOT_FOUND)
    assert images.events == [
        ("Normal", "Pulling", 'Pulling image "x:1"'),
        ("Warning", "Failed", f'Failed to pull image "x:1": {NOT_FOUND}'),
    ]
    images.events.clear()
    images.now = 9.0
    message = f'Back-off pulling image "x:1": ErrImagePull: {NOT_FOUND}'
    assert await images.problem() == ("ImagePullBackOff", message)
    assert images.events == [("Normal", "BackOff", 'Back-off pulling image "x:1"')]
    images.events.clear()
    images.now, images.runtime.has = 11.0, True
    assert await images.ensure() == IMAGE
    assert images.events == [
        ("Normal", "Pulling", 'Pulling image "x:1"'),
        (
            "Normal",
            "Pulled",
            'Successfully pulled image "x:1" in 0s (0s including waiting). Image size: 7 bytes.',
        ),
    ]


async def test_one_pods_failed_pull_does_not_hold_up_another_pod() -> None:
    images = Images()
    await images.problem()
    images.runtime.has = True
    assert await images.ensure(pod="other") == IMAGE


async def test_back_off_ends_with_the_pod() -> None:
    images = Images()
    await images.problem()
    images.manager.forget("u")
    assert (await images.problem())[0] == "ErrImagePull"


async def test_an_image_that_must_not_be_pulled_and_is_not_there() -> None:
    images = Images()
    message = 'Container image "x:1" is not present with pull policy of Never'
    assert await images.problem("x:1", "Never") == ("ErrImageNeverPull", message)
    assert images.events == [("Warning", "ErrImageNeverPull", message)]


async def test_an_image_that_is_there_is_pulled_only_when_always_wanted() -> None:
    images = Images()
    images.runtime.present = {"docker.io/library/x:1"}
    assert await images.ensure() == IMAGE
    text = 'Container image "x:1" already present on machine and can be accessed by the pod'
    assert images.events == [("Normal", "Pulled", text)]
    assert await images.problem("x:1", "Always") == ("ErrImagePull", NOT_FOUND)


async def test_a_name_that_is_none_never_reaches_the_runtime() -> None:
    images = Images()
    images.runtime.broken = True
    reason = "invalid reference format: repository name (library/Nginx) must be lowercase"
    message = f'Failed to apply default image tag "Nginx": couldn\'t parse image name "Nginx": {reason}'
    assert await images.problem("Nginx") == ("InvalidImageName", message)
    assert images.events == [("Warning", "InspectFailed", message)]


async def test_an_image_that_cannot_be_looked_at() -> None:
    images = Images()
    images.runtime.broken = True
    message = 'Failed to inspect image "x:1": rpc error: code = Internal desc = disk on fire'
    assert await images.problem() == ("ImageInspectError", message)


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("a/b:1", "docker.io/a/b:1"),
        ("localhost/b", "localhost/b:latest"),
        ("localhost:5000/b", "localhost:5000/b:latest"),
        ("reg.example.com/a/b@sha256:" + "a" * 64, "reg.example.com/a/b@sha256:" + "a" * 64),
        ("[::1]:5000/b:2", "[::1]:5000/b:2"),
    ],
)
def test_names_are_completed(reference: str, full: str) -> None:
    assert problem(reference) == ""
    assert normalize(reference) == full


@pytest.mark.parametrize(
    "reference", ["", "a b", "x:", "x@sha256:abc", "-x", "x/", "/x", "x:ta g", "reg.example.com//x", "x\n"]
)
def test_what_is_no_name(reference: str) -> None:
    assert problem(reference) == "invalid reference format"


def test_names_that_are_none_for_reasons_of_their_own() -> None:
    assert (
        problem("a" * 64)
        == f"invalid repository name ({'a' * 64}), cannot specify 64-byte hexadecimal strings"
    )
    assert problem("x" * 256) == "repository name must not be more than 255 characters"


def test_a_login_goes_to_its_own_registry_only() -> None:
    logins = [
        Credential("https://index.docker.io/v1/", {"username": "hub"}),
        Credential("reg.example.com", {"username": "all"}),
        Credential("reg.example.com/team", {"username": "team"}),
    ]

    def user(reference: str) -> str | None:
        found = matching_auth(reference, logins)
        return found["username"] if found else None

    assert user("busybox") == "hub"
    assert user("reg.example.com/other/x") == "all"
    assert user("reg.example.com/team/x:1") == "team"
    assert user("reg.example.com/teams/x:1") == "all"
    assert user("reg.example.com.attacker.example/x") is None
    assert user("quay.io/x/y") is None


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b'{"auths": []}', b'{"auths": {"r": {"auth": "/w="}}}', b'"x"']
)
def test_a_secret_that_holds_no_logins_is_passed_over(text: bytes) -> None:
    assert credentials_of({"data": {".dockerconfigjson": base64.b64encode(text).decode()}}) == []


def test_logins_are_read_from_both_kinds_of_secrets() -> None:
    auth = base64.b64encode(b"me:secret").decode()
    old = {".dockercfg": base64.b64encode(json.dumps({"r": {"auth": auth}}).encode()).decode()}
    assert credentials_of({"data": old}) == [Credential("r", {"username": "me", "password": "secret"})]
