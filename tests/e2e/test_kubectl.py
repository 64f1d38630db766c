"""kubectl, as installed, against a real cluster: its commands, what it prints, and what it is refused."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.claims import device
from tests.e2e.clusters import GUEST_IMAGE, Cluster, Machine, devices, manifest
from tests.e2e.commands import ROOT
from tests.e2e.failures import Document
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up

pytestmark = [
    pytest.mark.host,
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]

SPACE = "with-kubectl"
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
IMAGE = "kindling.local/busybox:1"
WAIT = "trap 'exit 0' TERM; sleep 900 & wait"
"""A shell script that waits, and ends when it is asked to."""


class Kubectl:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def attempt(
        self, *arguments: str, stdin: bytes = b"", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it, whatever comes of it."""
        done = subprocess.run(
            ["kubectl", "-n", self.namespace, *arguments],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
            env={**self.cluster.environment, **environment},
        )
        texts = (done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
        return subprocess.CompletedProcess(done.args, done.returncode, *texts)

    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> str:
        """Its output, which must be a success."""
        done = self.attempt(*arguments, stdin=stdin, **environment)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, document: Document | None = None) -> str:
        """What it says when it fails."""
        stdin = json.dumps(document).encode() if document is not None else b""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.returncode != 0, done.stdout
        return done.stderr.strip()

    def get(self, *arguments: str) -> Document:
        """An object."""
        found: Document = json.loads(self("get", *arguments, "-o", "json"))
        return found


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Iterator[Kubectl]:
    """kubectl in a namespace that is gone afterwards."""
    made = Kubectl(cluster, SPACE)
    made("create", "namespace", SPACE)
    try:
        yield made
    finally:
        made("delete", "namespace", SPACE, "--timeout=60s")


@pytest.fixture(scope="module")
def pod(kubectl: Kubectl) -> str:
    """A pod that prints two lines and waits."""
    script = f"echo to stdout; echo to stderr >&2; {WAIT}"
    options = (f"--image={IMAGE}", "--image-pull-policy=IfNotPresent", "--restart=Never")
    kubectl("run", "shell", *options, "--", "sh", "-c", script)
    kubectl("wait", "--for=condition=Ready", "pod/shell", "--timeout=30s")
    return "shell"


# Commands that build objects themselves. They send them as protobuf.


@pytest.mark.parametrize(
    ("kind", "options", "path", "value"),
    [
        ("configmap", ("--from-literal=a=b",), ("data",), {"a": "b"}),
        ("secret generic", ("--from-literal=a=b", "--type=x/y"), ("data",), {"a": "Yg=="}),
        ("serviceaccount", (), ("metadata", "name"), "made"),
        ("quota", ("--hard=cpu=1500m,pods=7",), ("spec", "hard"), {"cpu": "1500m", "pods": "7"}),
        ("service clusterip", ("--tcp=80:http",), ("spec", "ports", 0, "targetPort"), "http"),
        ("service nodeport", ("--tcp=80:8080",), ("spec", "ports", 0, "targetPort"), 8080),
        ("service externalname", ("--external-name=a.example",), ("spec", "externalName"), "a.example"),
        ("role", ("--verb=get", "--resource=pods/log"), ("rules", 0, "resources"), ["pods/log"]),
        ("rolebinding", ("--role=r", "--user=u"), ("subjects", 0, "name"), "u"),
        ("job", (f"--image={IMAGE}", "--", "true"), ("spec", "template", "spec", "restartPolicy"), "Never"),
        ("cronjob", (f"--image={IMAGE}", "--schedule=1 2 3 4 *"), ("spec", "schedule"), "1 2 3 4 *"),
        ("pdb", ("--selector=a=b", "--min-available=30%"), ("spec", "minAvailable"), "30%"),
        ("ingress", ("--rule=a.example/x*=s:80",), ("spec", "rules", 0, "http", "paths", 0, "path"), "/x"),
    ],
)
def test_create_makes_objects_from_its_options(
    kubectl: Kubectl, kind: str, options: tuple[str, ...], path: tuple[str | int, ...], value: object
) -> None:
    kubectl("create", *kind.split(), "made", *options)
    found: Any = kubectl.get(kind.split(maxsplit=1)[0], "made")
    for step in path:
        found = found[step]
    assert found == value
    kubectl("delete", kind.split(maxsplit=1)[0], "made", "--timeout=30s")


def test_what_create_sets_belongs_to_it_and_nothing_else_does(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "owned", "--from-literal=a=b")
    managed = kubectl.get("configmap", "owned", "--show-managed-fields")["metadata"]["managedFields"]
    assert [(entry["manager"], entry["fieldsV1"]) for entry in managed] == [
        ("kubectl-create", {"f:data": {".": {}, "f:a": {}}})
    ]


def test_auth_asks_what_somebody_may_do(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "vms").strip() == "yes"
    account = f"--as=system:serviceaccount:{SPACE}:default"
    denied = kubectl.attempt("auth", "can-i", "delete", "nodes", account)
    assert (denied.stdout.strip(), denied.returncode) == ("no", 1)
    assert "selfsubjectaccessreviews.authorization.k8s.io" in kubectl("auth", "can-i", "--list", account)
    assert "kubernetes-admin" in kubectl("auth", "whoami")


def test_a_created_token_is_that_of_the_account(kubectl: Kubectl) -> None:
    token = kubectl("create", "token", "default").strip()
    named = kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", f"--token={token}")
    assert named in (f"system:serviceaccount:{SPACE}:default", "kubernetes-admin")


def test_a_deployment_is_created_rolled_out_scaled_and_changed(kubectl: Kubectl) -> None:
    command = ("--", "sh", "-c", WAIT)
    kubectl("create", "deployment", "web", f"--image={IMAGE}", "--replicas=2", *command)
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    kubectl("scale", "deployment/web", "--replicas=1")
    kubectl("set", "env", "deployment/web", "A=b")
    assert "successfully rolled out" in kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    revisions = kubectl("rollout", "history", "deployment/web").splitlines()[2:]
    assert [line.split()[0] for line in revisions if line] == ["1", "2"]
    kubectl("delete", "deployment", "web", "--timeout=60s")


# Pods.


def test_logs_hold_both_streams(kubectl: Kubectl, pod: str) -> None:
    assert sorted(kubectl("logs", pod).splitlines()) == ["to stderr", "to stdout"]
    assert kubectl("logs", pod, "--tail=1", "--timestamps").split()[0].startswith("20")


def test_exec_hands_over_standard_input_to_its_end_and_the_exit_code(kubectl: Kubectl, pod: str) -> None:
    content = os.urandom(300_000).hex().encode()
    assert kubectl("exec", "-i", pod, "--", "cat", stdin=content) == content.decode()
    done = kubectl.attempt("exec", "-i", pod, "--", "sh", "-c", "cat >/dev/null; echo said >&2; exit 7")
    assert done.returncode == 7
    assert done.stderr.splitlines() == ["said", "command terminated with exit code 7"]


def test_exec_in_a_terminal_has_its_size(kubectl: Kubectl, pod: str) -> None:
    script = f"stty rows 33 cols 101; exec kubectl -n {SPACE} exec -it {pod} -- sh -c 'sleep 1; stty size'"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["sh", "-c", script], stdin=theirs, stdout=theirs, stderr=theirs, env=kubectl.cluster.environment
    ) as process:
        os.close(theirs)
        output = b""
        try:
            while chunk := os.read(ours, 4096):
                output += chunk
        except OSError:  # How a pseudo-terminal ends.
            pass
        assert process.wait(30) == 0
    os.close(ours)
    assert output.split()[-2:] == [b"33", b"101"]


def test_cp_copies_into_a_pod_and_back(kubectl: Kubectl, pod: str, tmp_path: Path) -> None:
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(2_000_000))
    kubectl("cp", str(here), f"{pod}:/tmp/there")
    kubectl("cp", f"{pod}:/tmp/there", str(back))
    assert back.read_bytes() == here.read_bytes()


def test_run_attaches_and_removes_the_pod(kubectl: Kubectl) -> None:
    options = (f"--image={IMAGE}", "--image-pull-policy=IfNotPresent", "--restart=Never", "--rm", "-i")
    answer = kubectl("run", "once", *options, "--", "sh", stdin=b"sleep 0.5; echo attached\n")
    assert "attached" in answer
    assert kubectl.attempt("get", "pod", "once").returncode != 0


def test_a_container_is_held_to_its_limit_of_processors(kubectl: Kubectl) -> None:
    """The limit is that of the container alone: its neighbour has none."""

    def container(name: str, script: str, limits: Document) -> Document:
        common = {"image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": {"limits": limits}}
        return {"name": name, "command": ["sh", "-c", script], **common}

    quota = "cd /sys/fs/cgroup; cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null | cut -d ' ' -f 1"
    limited = container("limited", f'until [ "$({quota})" = 5000 ]; do sleep 0.1; done', {"cpu": "50m"})
    containers = [limited, container("free", f"{quota}; {WAIT}", {})]
    spec: Document = {"restartPolicy": "Never", "containers": containers}
    made: Document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "held"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(made).encode())
    ended = "jsonpath={.status.containerStatuses[?(@.name=='limited')].state.terminated.exitCode}=0"
    kubectl("wait", f"--for={ended}", "pod/held", "--timeout=30s")
    assert kubectl("logs", "held", "-c", "free").strip() in ("-1", "max")
    kubectl("delete", "pod", "held", "--now")


# What it tells about kinds.


def test_explain_describes_the_fields_of_machines(kubectl: Kubectl) -> None:
    told = kubectl("explain", "vm.spec.template.spec.domain.cpu")
    assert told.splitlines()[:2] == ["GROUP:      kubevirt.io", "KIND:       VirtualMachine"]
    fields = {line.split()[0] for line in told.splitlines() if "\t<" in line}
    assert {"cores", "sockets", "threads", "model", "features", "dedicatedCpuPlacement"} <= fields


def test_api_resources_lists_short_names(kubectl: Kubectl) -> None:
    lines = kubectl("api-resources", "--api-group=kubevirt.io", "--no-headers").splitlines()
    assert [line.split() for line in lines] == [
        ["kubevirts", "kv,kvs", "kubevirt.io/v1", "true", "KubeVirt"],
        [
            "virtualmachineinstancemigrations",
            "vmim,vmims",
            "kubevirt.io/v1",
            "true",
            "VirtualMachineInstanceMigration",
        ],
        [
            "virtualmachineinstancepresets",
            "vmipreset,vmipresets",
            "kubevirt.io/v1",
            "true",
            "VirtualMachineInstancePreset",
        ],
        [
            "virtualmachineinstancereplicasets",
            "vmirs,vmirss",
            "kubevirt.io/v1",
            "true",
            "VirtualMachineInstanceReplicaSet",
        ],
        ["virtualmachineinstances", "vmi,vmis", "kubevirt.io/v1", "true", "VirtualMachineInstance"],
        ["virtualmachines", "vm,vms", "kubevirt.io/v1", "true", "VirtualMachine"],
    ]


# Refusals.


def machine(**changes: object) -> Document:
    """A VirtualMachine that is not to run, in no particular namespace."""
    made = manifest("refused", strategy="Halted")
    del made["metadata"]["namespace"]
    made["spec"].update(changes)
    return made


def test_a_wrong_field_is_named_by_its_path(kubectl: Kubectl) -> None:
    wrong = machine()
    wrong["spec"]["template"]["spec"]["domain"]["cpu"] = {"cors": 2}
    assert kubectl.refused("create", "-f", "-", document=wrong).endswith(
        'VirtualMachine in version "v1" cannot be handled as a VirtualMachine: strict decoding error: '
        'unknown field "spec.template.spec.domain.cpu.cors"'
    )


def test_a_bad_quantity_is_refused_in_kubevirts_words(kubectl: Kubectl) -> None:
    wrong = machine()
    wrong["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "128Mib"
    said = kubectl.refused("create", "-f", "-", document=wrong)
    assert said.endswith(
        'admission webhook "virtualmachines-mutator.kubevirt.io" denied the request: quantities must match '
        "the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"running": True},
            "spec.running: Running and RunStrategy are mutually exclusive. "
            "Note that Running is deprecated, please use RunStrategy instead",
        ),
        ({"runStrategy": "Sometimes"}, "spec.runStrategy: Invalid RunStrategy (Sometimes)"),
        ({"runStrategy": None}, "spec.running: RunStrategy must be specified"),
    ],
)
def test_contradictions_about_running_are_refused_in_kubevirts_words(
    kubectl: Kubectl, changes: Document, said: str
) -> None:
    wrong = machine(**changes)
    assert kubectl.refused("apply", "-f", "-", document=wrong) == f"The request is invalid: {said}"


def test_writers_of_every_kind_are_warned_of_fields_without_effect(cluster: Cluster) -> None:
    kubectl = Kubectl(cluster, "default")
    sizes = {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "launchSecurity": {"snp": {}}}
    flushes = {"features": {"preferredHyperv": {"tlbflush": {"direct": {"enabled": True}}}}}
    halted = machine(runStrategy="Halted", updateVolumesStrategy="Migration")["spec"]
    labelled = {"matchLabels": {"app": "warned"}}
    template = {"metadata": {"labels": {"app": "warned"}}, "spec": halted}
    pool = {"selector": labelled, "replicas": 0, "virtualMachineTemplate": template}
    for kind, spec, field in (
        ("VirtualMachineInstancetype", sizes, "spec.launchSecurity.snp"),
        ("VirtualMachineClusterInstancetype", sizes, "spec.launchSecurity.snp"),
        ("VirtualMachinePreference", flushes, "spec.features.preferredHyperv.tlbflush.direct"),
        ("VirtualMachinePool", pool, "spec.virtualMachineTemplate.spec.updateVolumesStrategy"),
    ):
        group = "pool" if kind == "VirtualMachinePool" else "instancetype"
        document = {
            "apiVersion": f"{group}.kubevirt.io/v1beta1",
            "kind": kind,
            "metadata": {"name": "warned"},
            "spec": spec,
        }
        done = kubectl.attempt("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(document).encode())
        assert done.returncode == 0, done.stderr
        assert f"Warning: {field}: " in done.stderr, kind
        assert "accepted, but has no effect yet" in done.stderr, kind


# Machines.


@pytest.fixture(scope="module")
def guest(cluster: Cluster) -> Iterator[Machine]:
    """A guest that runs."""
    made = cluster.create(manifest("shown", grace=1))
    try:
        made.wait_running()
        yield made
    finally:
        clean_up([made])


@pytest.mark.guest
def test_machines_instances_and_pods_are_printed_as_kubevirt_prints_them(guest: Machine) -> None:
    address, pod_name = guest.address(), guest.pod()["metadata"]["name"]
    wait_for("it says whether it can be moved", lambda: guest.condition("LiveMigratable") == "False", 20)
    text = Kubectl(guest.cluster, "default")("get", "vm,vmi,pods", "-o", "wide", "-l", "!absent")
    machines, instances, pods = (block.splitlines() for block in text.strip().split("\n\n"))

    assert machines[0].split() == ["NAME", "AGE", "STATUS", "READY"]
    row = next(line.split() for line in machines if "/shown " in line)
    assert (row[0], *row[2:]) == ("virtualmachine.kubevirt.io/shown", "Running", "True")
    columns = ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY", "LIVE-MIGRATABLE", "PAUSED"]
    assert instances[0].split() == columns
    row = next(line.split() for line in instances if "/shown " in line)
    named = "virtualmachineinstance.kubevirt.io/shown"
    assert (row[0], *row[2:]) == (named, "Running", address, "node01", "True", "False")
    assert pods[0].split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    row = next(line.split() for line in pods if pod_name in line)
    assert (row[0], row[2], row[3], row[5:]) == (
        f"pod/{pod_name}",
        "Running",
        "0",
        [address, "node01", "<none>", "1/1"],
    )


@pytest.mark.guest
def test_machines_are_described_edited_compared_and_waited_for(guest: Machine, tmp_path: Path) -> None:
    kubectl = Kubectl(guest.cluster, "default")
    told = kubectl("describe", "vm", "shown")
    assert "Printable Status:" in told
    assert "Started the virtual machine by creating the new virtual machine instance shown" in told
    told = kubectl("describe", "vmi", "shown")
    assert "VirtualMachineInstance defined." in told
    assert "VirtualMachineInstance started." in told

    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/runStrategy: Always/runStrategy: RerunOnFailure/' \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in kubectl("edit", "vm", "shown", EDITOR=str(editor))
    assert guest.vm()["spec"]["runStrategy"] == "RerunOnFailure"

    kubectl("wait", "--for=condition=Ready", "vm/shown", "--timeout=20s")
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "vmi/shown", "--timeout=20s")


_EDITOR = """#!{python}
import json, pathlib, sys
path = pathlib.Path(sys.argv[1])
machine = json.loads(path.read_text())
spec = machine["spec"]["template"]["spec"]
storage = {{"resources": {{"requests": {{"storage": "64Mi"}}}}, "storageClassName": {storage_class!r}}}
disk = {{"source": {{"blank": {{}}}}, "preallocation": True, "storage": storage}}
machine["spec"]["dataVolumeTemplates"] = [{{"metadata": {{"name": "shown-more"}}, "spec": disk}}]
spec["domain"]["devices"]["disks"] += [
    {{"name": "more", "disk": {{"bus": "virtio"}}, "serial": "more"}},
    {{"name": "drivers", "cdrom": {{"bus": "sata"}}}},
]
spec["volumes"] += [
    {{"name": "more", "dataVolume": {{"name": "shown-more"}}}},
    {{"name": "drivers", "containerDisk": {{"image": {image!r}, "imagePullPolicy": "IfNotPresent"}}}},
]
path.write_text(json.dumps(machine))
"""


def _needs_restart(machine: Machine) -> bool:
    conditions = machine.vm()["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("RestartRequired", "True") for each in conditions)


@pytest.mark.guest
@pytest.mark.feature("VML-23", "VML-26", "VMC-97")
def test_a_running_machine_is_edited_and_has_its_new_disks_after_a_restart(
    guest: Machine, tmp_path: Path
) -> None:
    kubectl = Kubectl(guest.cluster, "default")
    classes = kubectl.get("storageclasses")["items"]
    storage_class = next(
        each["metadata"]["name"]
        for each in classes
        if each["metadata"].get("annotations", {}).get(_DEFAULT_CLASS) == "true"
    )
    editor = tmp_path / "editor"
    editor.write_text(_EDITOR.format(python=sys.executable, storage_class=storage_class, image=GUEST_IMAGE))
    editor.chmod(0o755)
    first = guest.uid()
    edited = json.loads(kubectl("edit", "vm", "shown", "-o", "json", EDITOR=str(editor)))
    assert edited["spec"]["dataVolumeTemplates"]
    wait_for("it is told that a restart is needed", partial(_needs_restart, guest), 20)
    assert not any(each.get("id") == "ua-drivers" for each in devices(guest.command()))
    guest.cluster.virtctl("restart", "shown", "--force", "--grace-period=0")
    guest.wait_restarted(first, 90)
    claim = kubectl.get("pvc", "shown-more")
    assert claim["spec"]["storageClassName"] == storage_class
    assert claim["metadata"]["annotations"]["cdi.kubevirt.io/storage.preallocation"] == "true"
    (drive,) = (each for each in devices(guest.command()) if each.get("id") == "ua-drivers")
    assert (drive["driver"], drive["bus"]) == ("ide-cd", "ide.0")
    with guest.console() as console:
        size = console.run(f"cat /sys/block/{device(console, 'more')}/size")
    assert 60 << 20 <= int(size) * 512 <= 64 << 20


@pytest.mark.guest
def test_an_applied_machine_is_changed_by_the_next_apply_and_deleted_by_its_file(cluster: Cluster) -> None:
    kubectl = Kubectl(cluster, "default")
    wanted = manifest("applied", strategy="Halted")
    assert "created" in kubectl("apply", "-f", "-", stdin=json.dumps(wanted).encode())
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=json.dumps(wanted).encode())
    wanted["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "160Mi"
    assert kubectl.attempt("diff", "-f", "-", stdin=json.dumps(wanted).encode()).returncode == 1
    assert "configured" in kubectl("apply", "-f", "-", stdin=json.dumps(wanted).encode())
    kubectl("wait", "--for=jsonpath={.status.printableStatus}=Stopped", "vm/applied", "--timeout=20s")
    row = kubectl("get", "vm", "applied", "--no-headers").split()
    assert (row[0], *row[2:]) == ("applied", "Stopped", "False")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(wanted).encode())
    kubectl("delete", "-f", "-", "--timeout=30s", stdin=json.dumps(wanted).encode())
    assert kubectl.attempt("get", "vm", "applied").returncode != 0


def test_the_demos_manifest_passes_admission(cluster: Cluster) -> None:
    demo = str(ROOT / "examples/demo-vm.yaml")
    assert "created (server dry run)" in Kubectl(cluster, SPACE)("create", "--dry-run=server", "-f", demo)
