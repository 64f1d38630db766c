"""``create``: manifests, byte for byte as KubeVirt's virtctl prints them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from virtplane.cli.virtctl.documents import as_yaml

from .conftest import FakeServer, Virtctl


def _vm(virtctl: Virtctl, line: str) -> dict[str, object]:
    """The spec that the flags make."""
    result = virtctl("create", "vm", *shlex.split(line))
    assert (result.code, result.err) == (0, "")
    spec: dict[str, object] = yaml.safe_load(result.out)["spec"]
    return spec


@pytest.mark.feature("CTL-14", "CTL-15")
def test_a_machine_without_wishes_has_what_every_machine_has(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("create", "vm", "--name", "v").out == (
        "apiVersion: kubevirt.io/v1\n"
        "kind: VirtualMachine\n"
        "metadata:\n"
        "  name: v\n"
        "spec:\n"
        "  runStrategy: Always\n"
        "  template:\n"
        "    metadata: {}\n"
        "    spec:\n"
        "      domain:\n"
        "        devices: {}\n"
        "        memory:\n"
        "          guest: 512Mi\n"
        "        resources: {}\n"
        "      terminationGracePeriodSeconds: 180\n"
        "status: {}\n"
    )
    assert api.requests == []


@pytest.mark.feature("CTL-14")
def test_a_machine_without_a_name_gets_one_of_its_own(virtctl: Virtctl) -> None:
    names = {yaml.safe_load(virtctl("create", "vm").out)["metadata"]["name"] for _ in range(2)}
    assert len(names) == 2
    assert all(re.fullmatch("vm-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


@pytest.mark.feature("CTL-16", "CTL-17")
@pytest.mark.parametrize(
    ("given", "matcher"),
    [
        ("small", {"name": "small"}),
        ("virtualmachineinstancetype/small", {"name": "small", "kind": "virtualmachineinstancetype"}),
        (
            "VirtualMachineClusterInstancetype/small",
            {"name": "small", "kind": "virtualmachineclusterinstancetype"},
        ),
    ],
)
def test_an_instance_type_stands_in_for_memory(virtctl: Virtctl, given: str, matcher: dict[str, str]) -> None:
    spec = _vm(virtctl, f"--instancetype {given}")
    assert spec["instancetype"] == matcher
    assert "memory" not in yaml.safe_dump(spec["template"])


@pytest.mark.feature("CTL-18")
def test_an_instance_type_is_for_the_cluster_unless_a_namespace_is_meant(virtctl: Virtctl) -> None:
    shown = virtctl(
        *shlex.split("create instancetype --cpu 2 --memory 1024Mi --name a --gpu name:y,devicename:x/y:z")
    )
    assert shown.out == (
        "apiVersion: instancetype.kubevirt.io/v1beta1\n"
        "kind: VirtualMachineClusterInstancetype\n"
        "metadata:\n"
        "  name: a\n"
        "spec:\n"
        "  cpu:\n"
        "    guest: 2\n"
        "  gpus:\n"
        "  - deviceName: x/y:z\n"
        '    name: "y"\n'
        "  memory:\n"
        "    guest: 1Gi\n"
    )
    own = yaml.safe_load(virtctl(*shlex.split("create instancetype --cpu 1 --memory 0.5 --namespaced")).out)
    assert own["kind"] == "VirtualMachineInstancetype"
    assert own["metadata"]["name"].startswith("instancetype-")
    assert own["spec"]["memory"] == {"guest": "500m"}


@pytest.mark.feature("CTL-19", "CTL-20")
@pytest.mark.parametrize(
    ("line", "kind", "metadata"),
    [
        ("--name a", "VirtualMachineClusterPreference", {"name": "a"}),
        ("--name a --namespace n", "VirtualMachinePreference", {"name": "a", "namespace": "n"}),
        ("--name a --namespaced", "VirtualMachinePreference", {"name": "a"}),
    ],
)
def test_a_preference_is_for_the_namespace_that_is_named(
    virtctl: Virtctl, line: str, kind: str, metadata: dict[str, str]
) -> None:
    shown = yaml.safe_load(virtctl("create", "preference", *line.split()).out)
    assert (shown["kind"], shown["metadata"], shown["spec"]) == (kind, metadata, {})


def test_volumes_and_disks_come_in_the_order_of_their_kinds(virtctl: Virtctl) -> None:
    line = "--name v --volume-pvc src:a,bootorder:1 --volume-containerdisk src:c:1,bootorder:2,name:cd"
    spec = _vm(virtctl, f"{line} --volume-import type:ds,src:n/z,name:im,size:1024Mi --user u --ssh-key k,l")
    template = spec["template"]
    assert isinstance(template, dict)
    assert template["spec"]["domain"]["devices"]["disks"] == [
        {"name": "cd", "bootOrder": 2},
        {"name": "a", "bootOrder": 1},
    ]
    assert template["spec"]["volumes"] == [
        {"name": "cd", "containerDisk": {"image": "c:1"}},
        {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
        {"name": "im", "dataVolume": {"name": "im"}},
        {
            "name": "cloudinitdisk",
            "cloudInitNoCloud": {"userData": "#cloud-config\nuser: u\nssh_authorized_keys:\n  - k\n  - l"},
        },
    ]
    assert spec["dataVolumeTemplates"] == [
        {
            "metadata": {"name": "im"},
            "spec": {
                "sourceRef": {"kind": "DataSource", "name": "z", "namespace": "n"},
                "storage": {"resources": {"requests": {"storage": "1Gi"}}},
            },
        }
    ]
    # The claim boots first.
    assert spec["instancetype"] == {"inferFromVolume": "a", "inferFromVolumeFailurePolicy": "Ignore"}


def test_nothing_is_inferred_from_a_container_disk_that_boots_first(virtctl: Virtctl) -> None:
    spec = _vm(virtctl, "--volume-pvc src:a,bootorder:2 --volume-containerdisk src:c:1,bootorder:1")
    assert "instancetype" not in spec


def test_what_can_be_inferred_is_inferred_unless_that_is_unwanted(virtctl: Virtctl) -> None:
    tried = {"inferFromVolume": "a", "inferFromVolumeFailurePolicy": "Ignore"}
    spec = _vm(virtctl, "--volume-pvc src:a")
    assert (spec["instancetype"], spec["preference"]) == (tried, tried)
    wanted = _vm(virtctl, "--volume-pvc src:a --infer-instancetype --infer-preference=false")
    assert wanted["instancetype"] == {"inferFromVolume": "a"}
    assert "preference" not in wanted
    assert "instancetype" not in _vm(virtctl, "--volume-pvc src:a --memory 1Gi")


def test_credentials_bring_what_the_guest_needs_for_them(virtctl: Virtctl) -> None:
    spec = _vm(virtctl, "--user u --access-cred src:k")
    template = spec["template"]
    assert isinstance(template, dict)
    assert template["spec"]["accessCredentials"] == [
        {
            "sshPublicKey": {
                "source": {"secret": {"secretName": "k"}},
                "propagationMethod": {"qemuGuestAgent": {"users": ["u"]}},
            }
        }
    ]
    assert "setsebool" in template["spec"]["volumes"][0]["cloudInitNoCloud"]["userData"]


def test_a_password_in_a_manifest_is_warned_of(virtctl: Virtctl, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    result = virtctl("create", "vm", "--password-file", str(tmp_path / "password"))
    assert "password: secret\n" in result.out
    warning = "WARNING: --password-file: The password is stored in cleartext in the VM definition!\n"
    assert result.err == warning


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("instancetype --cpu 1", 'required flag(s) "memory" not set'),
        ("instancetype", 'required flag(s) "cpu", "memory" not set'),
        ("instancetype --cpu 0 --memory 1", "cpu value must be greater than zero"),
        (
            "instancetype --cpu -1 --memory 1",
            'invalid argument "-1" for "--cpu" flag: strconv.ParseUint: parsing "-1": invalid syntax',
        ),
        (
            "instancetype --cpu 1 --memory 1 --gpu foo",
            'failed to parse "--gpu" flag: params need to have at least one colon: foo',
        ),
        (
            "preference --cpu-topology x",
            'failed to parse "--cpu-topology" flag: '
            "CPU topology must have a value of sockets, cores, threads or spread",
        ),
        ("vm x", 'unknown command "x" for "virtctl create vm"'),
        (
            "vm --run-strategy x",
            'failed to parse "--run-strategy" flag: invalid run strategy "x", '
            "supported values are: Always, Manual, Halted, Once, RerunOnFailure",
        ),
        (
            "vm --memory 1Gi --instancetype x",
            "if any flags in the group [memory instancetype infer-instancetype infer-instancetype-from] "
            "are set none of the others can be; [instancetype memory] were all set",
        ),
        (
            "vm --volume-pvc src:a --volume-pvc src:a",
            'failed to parse "--volume-pvc" flag: there is already a volume with name "a"',
        ),
        (
            "vm --volume-pvc src:a,bootorder:0",
            'failed to parse "--volume-pvc" flag: bootorder must be greater than 0',
        ),
        (
            "vm --volume-import type:blank",
            'failed to parse "--volume-import" flag: size must be specified',
        ),
        (
            "vm --volume-import type:pvc,src:a",
            'failed to parse "--volume-import" flag: namespace of pvc "a" must be specified',
        ),
        (
            "vm --volume-containerdisk src:a --infer-preference",
            "inference of instancetype or preference works only with datasources, datavolumes or pvcs",
        ),
        (
            "vm --access-cred src:k",
            'failed to parse "--access-cred" flag: user must be specified with access credential ssh '
            'method ga ("--user" flag or param "user")',
        ),
    ],
)
def test_flags_that_make_no_sense_are_named(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl("create", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("true", '"true"'),
        ("y", '"y"'),
        ("1e3", '"1e3"'),
        ("", '""'),
        ("2026-01-01", '"2026-01-01"'),
        ("a\nb", "|-\n  a\n  b"),
        ("a\n", "|\n  a"),
        ("#x", "'#x'"),
    ],
)
def test_texts_that_look_otherwise_are_quoted_as_gos_library_does(text: str, shown: str) -> None:
    assert as_yaml({"k": text}) == f"k: {shown}\n"


def test_a_clone_says_of_what_it_is_one(api: FakeServer, virtctl: Virtctl) -> None:
    line = "create clone --name c --source-name s --target-name t -n ns"
    assert virtctl(*line.split()).out == (
        "apiVersion: clone.kubevirt.io/v1beta1\n"
        "kind: VirtualMachineClone\n"
        "metadata:\n"
        "  name: c\n"
        "  namespace: ns\n"
        "spec:\n"
        "  source:\n"
        "    apiGroup: kubevirt.io\n"
        "    kind: VirtualMachine\n"
        "    name: s\n"
        "  target:\n"
        "    apiGroup: kubevirt.io\n"
        "    kind: VirtualMachine\n"
        "    name: t\n"
        "  template: {}\n"
        "status: {}\n"
    )
    assert api.requests == []


def test_a_clone_of_a_snapshot_takes_filters_addresses_and_a_serial_number(virtctl: Virtctl) -> None:
    line = (
        "--source-name s --source-type vmsnapshot --label-filter * --label-filter !a/b --annotation-filter c"
        " --template-label-filter d --template-annotation-filter e --new-mac-address i:00-11"
        " --new-mac-address j:00-22 --new-smbios-serial x"
    )
    shown = yaml.safe_load(virtctl("create", "clone", *line.split()).out)
    assert re.fullmatch("clone-[bcdfghjklmnpqrstvwxz2456789]{5}", shown["metadata"]["name"])
    source = {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "s"}
    assert shown["spec"] == {
        "source": source,
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": ""},
        "labelFilters": ["*", "!a/b"],
        "annotationFilters": ["c"],
        "template": {"labelFilters": ["d"], "annotationFilters": ["e"]},
        "newMacAddresses": {"i": "00-11", "j": "00-22"},
        "newSMBiosSerial": "x",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", 'required flag(s) "source-name" not set'),
        ("--source-name=", "source name must not be empty"),
        (
            "--source-name a --source-type pvc",
            "source type pvc is not supported. Supported types: vm, vmsnapshot",
        ),
        (
            "--source-name a --target-type snapshot",
            "target type snapshot is not supported. Supported types: vm",
        ),
        (
            "--source-name a --new-mac-address i:00:11",
            "newMacAddress parameter i:00:11 is invalid: exactly one ':' is expected."
            " For example: 'interface0:address0'",
        ),
        ("--source-name a --new-mac-address :0", "newMacAddress parameter :0 has empty interface name"),
        ("--source-name a --new-mac-address i:", "newMacAddress parameter i: has empty address name"),
    ],
)
def test_a_clone_that_makes_no_sense_is_told(virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl("create", "clone", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
