"""Images as volumes: pulled as those of containers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kindling.node.backend import ApiBackend
from kindling.node.images.manager import ImageManager, ImageProblem
from kindling.node.runtime.interface import RuntimeFailure
from kindling.node.volumes.manager import VolumeManager, VolumeProblem
from kubecore import resources
from kubecore.testing import MemoryApi

_POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {
        "imagePullSecrets": [{"name": "login"}],
        "volumes": [{"name": "disk", "image": {"reference": "registry.test/disk:1", "pullPolicy": "Always"}}],
    },
}
_LOGIN = "eyJhdXRocyI6eyJyZWdpc3RyeS50ZXN0Ijp7InVzZXJuYW1lIjoiYW5uIiwicGFzc3dvcmQiOiJzZWNyZXQifX19"
"""A login for registry.test, as a pull secret holds it."""


def _runtime() -> Any:
    failure = RuntimeFailure("no such host", "UNKNOWN")
    return Mock(image_status=AsyncMock(return_value=None), pull_image=AsyncMock(side_effect=failure))


async def test_a_pull_that_fails_is_tried_with_the_pods_login_and_then_waited_for() -> None:
    api, runtime, record_event = MemoryApi(), _runtime(), Mock()
    secret = {"metadata": {"name": "login", "namespace": "ns"}, "data": {".dockerconfigjson": _LOGIN}}
    api.put(resources.SECRETS, secret)
    async with api.client() as client:
        backend = ApiBackend(client, ImageManager(runtime), record_event, Mock(), list, Mock(), Mock())
        reasons = []
        for _ in range(2):
            with pytest.raises(ImageProblem) as problem:
                await backend.mount_image(_POD, "registry.test/disk:1", "Always", Path("/nonexistent"))
            reasons.append(problem.value.reason)
    assert reasons == ["ErrImagePull", "ImagePullBackOff"]
    assert [call.args[2:] for call in record_event.call_args_list] == [
        ("Pulling", 'Pulling image "registry.test/disk:1"', ""),
        (
            "Failed",
            'Failed to pull image "registry.test/disk:1": rpc error: code = Unknown desc = no such host',
            "",
        ),
        ("BackOff", 'Back-off pulling image "registry.test/disk:1"', ""),
    ]
    runtime.pull_image.assert_awaited_once_with(
        "registry.test/disk:1", {"username": "ann", "password": "secret"}
    )


async def test_a_volume_says_what_its_containers_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindling.node.pods.identity.ROOT", tmp_path)
    backend = Mock(mount_image=AsyncMock(side_effect=ImageProblem("ErrImagePull", "no such host")))
    with pytest.raises(VolumeProblem) as problem:
        await VolumeManager(backend).prepare(_POD)
    assert (problem.value.volume, problem.value.waiting_reason) == ("disk", "ErrImagePull")
    assert "no such host" in problem.value.event_message
