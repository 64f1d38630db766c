"""``adm log-verbosity``: shown, set and reset in the KubeVirt object."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject

from .conftest import FakeServer, Virtctl

_ALL = "/apis/kubevirt.io/v1/kubevirts"
_OWN = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt"
_PATH = "/spec/configuration/developerConfiguration"


def _installed(api: FakeServer, configuration: JsonObject | None) -> None:
    spec = {} if configuration is None else {"configuration": configuration}
    item = {"metadata": {"name": "kubevirt", "namespace": "kubevirt"}, "spec": spec}
    api.answers["GET", _ALL] = (200, {"metadata": {}, "items": [item]})


def _levels(**levels: int) -> JsonObject:
    return {"developerConfiguration": {"logVerbosity": levels}}


def _patches(api: FakeServer) -> list[Any]:
    return [body for method, path, body in api.requests if (method, path.split("?")[0]) == ("PATCH", _OWN)]


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ("--virt-handler --virt-api", "virt-api=2\nvirt-handler=7\n"),
        ("--virt-api=10", "virt-api=2\n"),
        ("--all", "virt-api=2\nvirt-controller=2\nvirt-handler=7\nvirt-launcher=2\nvirt-operator=2\n"),
    ],
)
def test_a_flag_without_value_shows_the_verbosity(
    api: FakeServer, virtctl: Virtctl, flags: str, shown: str
) -> None:
    _installed(api, _levels(virtHandler=7))
    result = virtctl("adm", "log-verbosity", *flags.split())
    assert (result.code, result.out, result.err) == (0, shown, "")
    assert _patches(api) == []


@pytest.mark.parametrize(
    ("configuration", "flags", "operations"),
    [
        pytest.param(
            _levels(virtHandler=7),
            "--virt-api=3",
            [{"op": "add", "path": f"{_PATH}/logVerbosity", "value": {"virtHandler": 7, "virtAPI": 3}}],
            id="others-stay",
        ),
        pytest.param(
            {"developerConfiguration": {}},
            "--all=3 --virt-handler=7",
            [
                {
                    "op": "add",
                    "path": f"{_PATH}/logVerbosity",
                    "value": {
                        "virtAPI": 3,
                        "virtController": 3,
                        "virtHandler": 7,
                        "virtLauncher": 3,
                        "virtOperator": 3,
                    },
                }
            ],
            id="one-differs-from-all",
        ),
        pytest.param(
            {},
            "--virt-api=0",
            [
                {"op": "add", "path": _PATH, "value": {}},
                {"op": "add", "path": f"{_PATH}/logVerbosity", "value": {"virtAPI": 0}},
            ],
            id="parent-is-made",
        ),
        pytest.param(
            None,
            "--virt-api=1",
            [
                {"op": "add", "path": "/spec/configuration", "value": {}},
                {"op": "add", "path": _PATH, "value": {}},
                {"op": "add", "path": f"{_PATH}/logVerbosity", "value": {"virtAPI": 1}},
            ],
            id="all-parents-are-made",
        ),
        pytest.param(
            _levels(virtHandler=7),
            "--reset",
            [{"op": "add", "path": f"{_PATH}/logVerbosity", "value": {}}],
            id="reset",
        ),
        pytest.param(
            _levels(virtHandler=7),
            "--reset --virt-api=4",
            [{"op": "add", "path": f"{_PATH}/logVerbosity", "value": {"virtAPI": 4}}],
            id="reset-and-set",
        ),
    ],
)
def test_verbosities_are_set_and_reset(
    api: FakeServer, virtctl: Virtctl, configuration: JsonObject, flags: str, operations: list[JsonObject]
) -> None:
    _installed(api, configuration)
    result = virtctl("adm", "log-verbosity", *flags.split())
    assert (result.code, result.out, result.err) == (0, "successfully set/reset the log verbosity\n", "")
    assert _patches(api) == [operations]


def test_a_reset_of_nothing_changes_nothing(api: FakeServer, virtctl: Virtctl) -> None:
    _installed(api, {})
    result = virtctl("adm", "log-verbosity", "--reset")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert _patches(api) == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--virt-handler --virt-launcher=3", "only show or set is allowed"),
        ("--reset --virt-launcher", "only show or set is allowed"),
        ("--virt-api=5 --virt-handler=20", "virt-handler: log verbosity must be 0-9"),
        ("--all 3", 'unknown command "3" for "virtctl adm log-verbosity"'),
        (
            "--virt-api=-1",
            'invalid argument "-1" for "--virt-api" flag: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        ("--node", "unknown flag: --node"),
    ],
)
def test_verbosities_that_make_no_sense_are_told(
    api: FakeServer, virtctl: Virtctl, flags: str, said: str
) -> None:
    _installed(api, {})
    result = virtctl("adm", "log-verbosity", *flags.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert _patches(api) == []


def test_without_flags_help_is_shown(api: FakeServer, virtctl: Virtctl) -> None:
    _installed(api, {})
    result = virtctl("adm", "log-verbosity")
    assert (result.code, result.err) == (1, "no flag specified - expecting at least one flag\n")
    assert "--virt-controller" in result.out


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "could not detect a KubeVirt installation"),
        (2, "invalid kubevirt installation, more than one KubeVirt resource found"),
    ],
)
def test_there_is_one_installation(api: FakeServer, virtctl: Virtctl, count: int, said: str) -> None:
    item = {"metadata": {"name": "k", "namespace": "n"}, "spec": {}}
    api.answers["GET", _ALL] = (200, {"metadata": {}, "items": [item] * count})
    result = virtctl("adm", "log-verbosity", "--all")
    assert (result.code, result.err) == (1, f"{said}\n")


def test_a_reset_and_a_level_for_all_exclude_each_other(api: FakeServer, virtctl: Virtctl) -> None:
    result = virtctl("adm", "log-verbosity", "--reset", "--all=3")
    text = "if any flags in the group [reset all] are set none of the others can be; [all reset] were all set"
    assert (result.code, result.err, api.requests) == (1, f"{text}\n", [])
