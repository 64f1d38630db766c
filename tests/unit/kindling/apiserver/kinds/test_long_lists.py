"""Lists as long as a request: they are judged in the time that their length takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kindling.apiserver.kinds.batch.policies import failure_policy
from kindling.apiserver.kinds.core.services.validation import validate_service
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath

_MANY = 50_000


def _service() -> Iterable[FieldError]:
    spec: JsonObject = {"ipFamilies": [f"n{number}" for number in range(_MANY)], "ports": [{"port": 80}]}
    return validate_service({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})


def _job() -> Iterable[FieldError]:
    codes: dict[str, Any] = {"operator": "In", "values": list(range(1, _MANY))}
    rules = [{"action": "FailJob", "onExitCodes": codes}]
    spec: JsonObject = {"template": {"spec": {"containers": []}}, "podFailurePolicy": {"rules": rules}}
    return failure_policy(FieldPath("spec"), spec)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("judge", [_service, _job], ids=["families", "codes"])
def test_a_long_list_takes_linear_time(judge: Callable[[], Iterable[FieldError]]) -> None:
    begun = time.thread_time()
    assert list(judge())
    assert time.thread_time() - begun < 3
