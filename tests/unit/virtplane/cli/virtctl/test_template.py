"""``template``: machines of templates, filled in here or by the server, and templates of other things."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubecore.json import JsonObject
from virtplane.cli.virtctl.templates.templating import TemplateError, generated

from .conftest import FakeServer, Virtctl

_BASE = "/apis/template.kubevirt.io/v1beta1/namespaces/default"
_OWN = f"{_BASE}/virtualmachinetemplates/t"
_SUB = "/apis/subresources.template.kubevirt.io/v1beta1/namespaces/default/virtualmachinetemplates/t"
_MACHINE: JsonObject = {
    "metadata": {"name": "${NAME}", "labels": {"size": "x-${CPU}", "${CPU}": "key"}},
    "spec": {
        "runStrategy": "Halted",
        "template": {"spec": {"domain": {"cpu": {"cores": "${{CPU}}"}, "devices": {}}}},
    },
}
_TEMPLATE: JsonObject = {
    "apiVersion": "template.kubevirt.io/v1beta1",
    "kind": "VirtualMachineTemplate",
    "metadata": {"name": "t"},
    "spec": {
        "parameters": [
            {"name": "NAME", "generate": "expression", "from": "vm-[a-f0-9]{8}", "description": "d"},
            {"name": "CPU", "value": "2", "required": True},
        ],
        "message": "made ${NAME}",
        "virtualMachine": _MACHINE,
    },
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes the template, changed, to a file."""

    def written(change: Callable[[JsonObject], object] = lambda spec: None) -> str:
        document = json.loads(json.dumps(_TEMPLATE))
        change(document["spec"])
        path = tmp_path / "template.yaml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return written


Write = Callable[..., str]


def test_a_template_in_a_file_is_filled_in_here(api: FakeServer, virtctl: Virtctl, write: Write) -> None:
    result = virtctl("template", "process", "-f", write(), "-p", "NAME=web,CPU=4")
    assert (result.code, result.err) == (0, "made web")
    assert yaml.safe_load(result.out) == {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web", "labels": {"size": "x-4", "4": "key"}},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "metadata": {},
                "spec": {"domain": {"cpu": {"cores": 4}, "devices": {}, "resources": {}}},
            },
        },
        "status": {},
    }
    assert api.requests == []


def test_values_come_from_a_file_or_are_generated(virtctl: Virtctl, write: Write, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("CPU: 3\n")
    line = ("-f", write(), "--params-file", str(tmp_path / "values.yaml"), "-o", "json")
    made = json.loads(virtctl("template", "process", *line).out)
    assert re.fullmatch("vm-[a-f0-9]{8}", made["metadata"]["name"])
    assert made["spec"]["template"]["spec"]["domain"]["cpu"] == {"cores": 3}


def test_the_server_fills_in_its_own_templates(api: FakeServer, virtctl: Virtctl) -> None:
    machine = {"metadata": {"name": "made"}, "spec": {}}
    api.answers["POST", f"{_SUB}/process"] = (200, {"virtualMachine": machine, "message": "hello"})
    result = virtctl("template", "process", "t", "-p", "CPU=4")
    assert (result.code, result.err) == (0, "hello")
    assert yaml.safe_load(result.out)["metadata"] == {"name": "made"}
    assert api.requests == [("POST", f"{_SUB}/process", {"parameters": {"CPU": "4"}})]


def test_the_server_makes_the_machine(api: FakeServer, virtctl: Virtctl) -> None:
    made = {"virtualMachine": {"metadata": {"name": "made"}}, "message": "hello"}
    api.answers["POST", f"{_SUB}/create"] = (201, made)
    result = virtctl("template", "process", "t", "--create")
    assert (result.code, result.out, result.err) == (0, "virtualmachine.kubevirt.io/made created\n", "")
    assert api.requests == [("POST", f"{_SUB}/create", {})]


def test_a_template_of_the_server_may_be_filled_in_here(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _OWN] = (200, _TEMPLATE)
    result = virtctl("template", "process", "--name", "t", "--local", "-p", "NAME=n")
    assert yaml.safe_load(result.out)["metadata"]["name"] == "n"
    assert api.requests == [("GET", _OWN, None)]


def test_parameters_are_shown(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _OWN] = (200, _TEMPLATE)
    shown = yaml.safe_load(virtctl("template", "process", "t", "--print-params").out)
    assert shown == _TEMPLATE["spec"]["parameters"]


def test_what_is_never_used_is_told(virtctl: Virtctl, write: Write) -> None:
    path = write(lambda spec: spec["parameters"].append({"name": "SPARE"}))
    result = virtctl("template", "process", "-f", path, "-p", "NAME=n")
    assert result.code == 0
    assert result.err == "Warning: spec.parameters[2].name: SPARE is defined but never referenced\nmade n"


_HERE = "error processing VirtualMachineTemplate locally: "


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        (None, "-p NOPE=1", "error merging template parameters: parameter NOPE not found in template"),
        (
            lambda spec: spec.pop("virtualMachine"),
            "",
            "error validating template parameters: spec.virtualMachine: Invalid value: null:"
            " virtualMachine is required and cannot be empty",
        ),
        (
            lambda spec: spec.update(message="${NOPE}"),
            "",
            'error validating template parameters: spec.virtualMachine: Invalid value: "NOPE":'
            " references undefined parameter NOPE",
        ),
        (
            None,
            "-p CPU=",
            f"{_HERE}spec.parameters[1].value: Required value:"
            " parameter 'CPU' is required and a value must be specified",
        ),
        (
            lambda spec: spec["parameters"].append({"name": "CPU"}),
            "",
            f'{_HERE}spec.parameters[2].name: Duplicate value: "CPU"',
        ),
        (
            lambda spec: spec["parameters"][0].pop("from"),
            "",
            f'{_HERE}spec.parameters[0].from: Invalid value: "":'
            " from cannot be empty for parameter 'NAME' using generator 'expression'",
        ),
        (
            lambda spec: spec["parameters"][0].update(generate="magic"),
            "",
            f'{_HERE}spec.parameters[0].generate: Invalid value: "magic":'
            " unknown generator name 'magic' for parameter 'NAME'",
        ),
        (
            lambda spec: spec["parameters"][0].update({"from": "[a-z]{300}"}),
            "",
            f'{_HERE}spec.parameters[0].from: Invalid value: "[a-z]{{300}}":'
            " range must be within [1-255] characters: 300",
        ),
    ],
)
def test_templates_and_values_that_do_not_fit_are_told(
    virtctl: Virtctl, write: Write, change: Callable[[JsonObject], Any] | None, flags: str, said: str
) -> None:
    path = write(change) if change else write()
    result = virtctl("template", "process", "-f", path, *flags.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


def test_a_machine_that_cannot_be_read_is_told(virtctl: Virtctl, write: Write) -> None:
    result = virtctl("template", "process", "-f", write(), "-p", "CPU=two")
    assert result.code == 1
    assert "failed to convert unstructured object to VirtualMachine" in result.err
    assert "spec.template.spec.domain.cpu.cores" in result.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("process", "name or file must be provided"),
        ("process a b", "accepts between 0 and 1 arg(s), received 2"),
        ("process a --name b", "provide name either from positional argument or from flag"),
        ("process a -f b", "only one of name or file can be provided"),
        ("process a -o xml", "not supported output format: xml"),
        (
            "process a --local --create",
            "if any flags in the group [create local] are set none of the others can be;"
            " [create local] were all set",
        ),
        ("process a -p x", 'invalid argument "x" for "-p, --param" flag: x must be formatted as key=value'),
        ("process -f /nowhere", "error opening file /nowhere: open /nowhere: no such file or directory"),
        (
            "process a --params-file /nowhere",
            "error reading params file: open /nowhere: no such file or directory",
        ),
        ("convert", "name or file must be provided"),
        ("create", 'required flag(s) "vm-name" not set'),
        ("create x --vm-name v", 'unknown command "x" for "virtctl template create"'),
    ],
)
def test_misuse_is_told_before_anything_is_asked(
    api: FakeServer, virtctl: Virtctl, line: str, said: str
) -> None:
    result = virtctl("template", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")
    assert api.requests == []


@pytest.mark.parametrize(
    ("line", "method", "path", "said"),
    [
        (
            "process t",
            "POST",
            f"{_SUB}/process",
            "error processing remote VirtualMachineTemplate default/t: no",
        ),
        (
            "process t --create",
            "POST",
            f"{_SUB}/create",
            "error creating VirtualMachine from remote VirtualMachineTemplate default/t: no",
        ),
        ("process t --local", "GET", _OWN, "error fetching remote VirtualMachineTemplate default/t: no"),
        (
            "process t --print-params",
            "GET",
            _OWN,
            "error printing template parameters: error fetching remote VirtualMachineTemplate default/t: no",
        ),
        (
            "convert o",
            "GET",
            "/apis/template.openshift.io/v1/namespaces/default/templates/o",
            "error fetching remote Template default/o: no",
        ),
        (
            "create --vm-name v",
            "POST",
            f"{_BASE}/virtualmachinetemplaterequests",
            "error creating VirtualMachineTemplateRequest: no",
        ),
    ],
)
def test_refusals_are_told(
    api: FakeServer, virtctl: Virtctl, line: str, method: str, path: str, said: str
) -> None:
    api.refuse(method, path, 404, "no")
    result = virtctl("template", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")


def test_an_answer_without_machine_is_an_error(virtctl: Virtctl) -> None:
    result = virtctl("template", "process", "t")
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("the server's answer holds no VirtualMachine\n")


def test_a_template_of_openshift_is_converted(api: FakeServer, virtctl: Virtctl) -> None:
    old = {
        "apiVersion": "template.openshift.io/v1",
        "kind": "Template",
        "metadata": {"name": "o", "namespace": "n", "uid": "u", "labels": {"l": "m"}},
        "objects": [_MACHINE],
        "parameters": _TEMPLATE["spec"]["parameters"],
        "message": "hello",
    }
    path = "/apis/template.openshift.io/v1/namespaces/default/templates/o"
    api.answers["GET", path] = (200, old)
    assert yaml.safe_load(virtctl("template", "convert", "o").out) == {
        "apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplate",
        "metadata": {"name": "o", "namespace": "n", "labels": {"l": "m"}},
        "spec": {
            "virtualMachine": _MACHINE,
            "parameters": _TEMPLATE["spec"]["parameters"],
            "message": "hello",
        },
    }
    api.answers["GET", path] = (200, {**old, "objects": [_MACHINE, _MACHINE]})
    result = virtctl("template", "convert", "--name", "o")
    assert (result.code, result.err) == (1, "template must contain exactly one object, found 2\n")


def test_a_template_of_a_machine_is_requested(api: FakeServer, virtctl: Virtctl) -> None:
    path = f"{_BASE}/virtualmachinetemplaterequests"
    api.answers["POST", path] = (201, {"metadata": {"name": "v-abc"}})
    result = virtctl("template", "create", "--vm-name", "v", "--vm-namespace", "o", "--name", "n")
    assert result.out == "virtualmachinetemplaterequest.template.kubevirt.io/v-abc created\n"
    [(_, _, body)] = api.requests
    assert body == {
        "apiVersion": "template.kubevirt.io/v1beta1",
        "kind": "VirtualMachineTemplateRequest",
        "metadata": {"generateName": "v-", "namespace": "default"},
        "spec": {"virtualMachineRef": {"namespace": "o", "name": "v"}, "templateName": "n"},
    }


@pytest.mark.parametrize(
    ("pattern", "made"),
    [
        ("plain", "plain"),
        ("x[0-9]{3}-[abc]{2}", "x[0-9]{3}-[abc]{2}"),
        (r"[\w]{40}", r"\w{40}"),
        (r"[\d]{9}[\a]{9}", r"\d{9}[a-zA-Z0-9]{9}"),
        (r"[\A]{20}", r"[^\w\s]{20}|[^a-zA-Z0-9\s]{20}"),
        ("[a-Z]{9}", "[a-zA-Z]{9}"),
        ("[a-z]", re.escape("[a-z]")),
        ("[^a]{5}", re.escape("[^a]{5}")),
    ],
)
def test_patterns_are_filled_with_random_characters(pattern: str, made: str) -> None:
    assert re.fullmatch(made, generated(pattern))


def test_a_range_that_runs_backwards_is_an_error() -> None:
    with pytest.raises(TemplateError, match="invalid range specified: 9-0"):
        generated("[9-0]{2}")
