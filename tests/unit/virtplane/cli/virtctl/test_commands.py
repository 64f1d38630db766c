"""Every command and its flags, with their defaults, as KubeVirt's virtctl has them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from virtplane.cli.virtctl import main as program
from virtplane.cli.virtctl.globalflags import global_flags

_TABLE = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/kubevirt/virtctl.md"

_COMMANDS = """\
addvolume: --bus=scsi --cache --disk-name --disk-type=disk --dry-run? --persist? --serial --volume-name
adm log-verbosity: --all=11 --reset? --virt-api=11 --virt-controller=11 --virt-handler=11
    --virt-launcher=11 --virt-operator=11
console: --timeout=5
create clone: --annotation-filter* --label-filter* --name --new-mac-address* --new-smbios-serial
    --source-name --source-type --target-name --target-type --template-annotation-filter*
    --template-label-filter*
create instancetype: --cpu --gpu* --hostdevice* --iothreadspolicy --memory --name --namespaced?
create preference: --cpu-topology --machine-type --name --namespaced? --volume-storage-class
create vm: --access-cred* --cloud-init --cloud-init-network-data --cloud-init-user-data --ga-manage-ssh?
    --infer-instancetype-from --infer-instancetype?=true --infer-preference-from
    --infer-preference?=true --instancetype --memory=512Mi --name --password-file --preference
    --run-strategy=Always --ssh-key* --termination-grace-period=180 --user --volume-blank*
    --volume-clone-pvc* --volume-containerdisk* --volume-datasource* --volume-import* --volume-pvc*
    --volume-sysprep
credentials add-ssh-key: --create-secret? --file/-f --force? --secret --update-secret? --user/-u --value
credentials remove-ssh-key: --file/-f --force? --secret --user/-u --value
credentials set-password: --force? --password/-p --secret --user/-u
evacuate-cancel: --dry-run?
expand: --file/-f --output/-o=yaml --vm
expose: --cluster-ip --external-ip --ip-family --ip-family-policy --name --port --port-name
    --protocol=TCP --target-port --type=ClusterIP
fslist:
guestfs: --fsGroup --gid --image --kvm?=true --pull-policy=IfNotPresent --root? --uid --vm
guestosinfo:
image-upload: --access-mode --archive-path --block-volume? --datasource? --default-instancetype
    --default-instancetype-kind --default-preference --default-preference-kind --force-bind?
    --image-path --insecure? --no-create? --pvc-name --pvc-size --retry=5 --size --storage-class
    --uploadproxy-url --volume-mode --wait-secs=300
memory-dump: --access-mode --claim-name --create-claim? --format --local-port=0 --output --port-forward?
    --storage-class
migrate: --addedNodeSelector* --dry-run? --to
migrate-cancel: --dry-run?
objectgraph: --exclude-optional? --output/-o=json --selector* --vmi?
pause: --dry-run?
permitted-devices:
port-forward: --address=127.0.0.1 --stdio?
removevolume: --dry-run? --persist? --volume-name
reset:
restart: --dry-run? --force? --grace-period=-1
scp: --identity-file/-i=~/.ssh/id_rsa --known-hosts=~/.ssh/kubevirt_known_hosts --local-ssh-opts/-t*
    --port/-p=22 --preserve? --recursive/-r? --username/-l
soft-reboot:
ssh: --command/-c --identity-file/-i=~/.ssh/id_rsa --known-hosts=~/.ssh/kubevirt_known_hosts
    --local-ssh-opts/-t* --port/-p=22 --username/-l
start: --dry-run? --paused?
stop: --dry-run? --force? --grace-period=-1
template convert: --file/-f --name --output/-o=yaml
template create: --name --vm-name --vm-namespace
template process: --create? --file/-f --local? --name --output/-o=yaml --param/-p* --params-file
    --print-params?
unpause: --dry-run?
usbredir: --no-launch?
userlist:
version: --client/-c?
vmexport: --annotations* --delete-vme? --format --include-secret? --insecure? --keep-vme? --labels*
    --local-port=0 --manifest-output-format --manifest? --output --port-forward? --pvc
    --readiness-timeout --retry --service-url --snapshot --ttl --vm --vmtemplate --volume
vnc: --address=127.0.0.1 --port --preserve-session? --proxy-only? --vnc-path --vnc-type
vnc screenshot: --file/-f --move-cursor/-m?
"""
"""A command a line, with its flags: ``?`` marks switches, ``*`` what may be repeated."""

_GLOBAL = (
    "--as --as-group* --as-uid --certificate-authority --client-certificate --client-key --cluster --context"
    " --disable-compression? --insecure-skip-tls-verify? --kubeconfig --namespace/-n --password --proxy-url"
    " --request-timeout=0 --server/-s --tls-server-name --token --user --username --v/-v=2"
)
_NOT_KUBEVIRTS = ("adm drain-plan", "completion", "explain-status", "help", "import")
"""Commands that are ours, or come with every program of kubectl's family."""


_HIDDEN = {"image-upload": ["--block-volume?", "--pvc-name", "--pvc-size"]}
"""Flags of old that still work."""
_OURS = {"migrate": ["--to"]}
"""Flags that KubeVirt's commands do not have."""


@click.command()
@global_flags
def _bare(**_given: object) -> None:
    """A command that has the global flags alone."""


def _options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def _shown(option: click.Option) -> str:
    names = "/".join(sorted(option.opts, key=len, reverse=True))
    if option.multiple:
        return f"{names}*"
    if isinstance(option.type, click.types.BoolParamType):
        return f"{names}?=true" if option.default is True else f"{names}?"
    default = option.default if isinstance(option.default, str | int) else ""
    # The defaults of paths begin with whoever's home folder that is.
    text = str(default).replace(str(Path.home()), "~")
    return f"{names}={text}" if default else names


def _own_flags(command: click.Command) -> list[str]:
    """The flags of a command that are not those of every command."""
    everywhere = {(option.name, option.help) for option in _options(_bare)}
    options = _options(command)
    return sorted(_shown(option) for option in options if (option.name, option.help) not in everywhere)


def _commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= _commands(command, f"{path}{name} ")
        else:
            found[f"{path}{name}"] = command
    return found


def test_no_command_and_no_flag_disappears() -> None:
    found = {
        path: " ".join(_own_flags(command))
        for path, command in _commands(program.virtctl).items()
        if path not in _NOT_KUBEVIRTS and path.partition(" ")[0] not in _NOT_KUBEVIRTS
    }
    lines = _COMMANDS.replace("\n    ", " ").splitlines()
    wanted = dict(line.partition(":")[::2] for line in lines)
    assert found == {path: flags.strip() for path, flags in wanted.items()}


@pytest.mark.feature("CTL-08")
def test_every_command_has_the_global_flags() -> None:
    assert " ".join(sorted(_shown(option) for option in _options(_bare))) == _GLOBAL
    wanted = {flag for option in _options(_bare) for flag in option.opts}
    for path, command in _commands(program.virtctl).items():
        if path.partition(" ")[0] not in ("completion", "help"):
            assert wanted <= {flag for option in _options(command) for flag in option.opts}, path


@pytest.mark.skipif(not _TABLE.exists(), reason="VIRTPLANE_REFERENCE names no directory with facts")
def test_commands_flags_and_defaults_are_those_of_kubevirt() -> None:
    rows = re.findall(r"^\| ([a-z][a-z -]*) \| `.*?` \| (`--.*|-) \|$", _TABLE.read_text(), re.M)
    flag = re.compile(r'`(--[\w-]+)`(?:/`(-\w)`)? (\w+)(?:\[=\d+\])?(?:=("[^"]*"|[^,"]*))?')
    for path, listed in rows:
        wanted = []
        for name, letter, kind, default in flag.findall(listed):
            names = f"{name}/{letter}" if letter else name
            text = default.strip('"').strip()
            mark = (
                "?" if kind == "bool" else "*" if kind in ("stringArray", "strings", "stringToString") else ""
            )
            wanted.append(f"{names}{mark}" + (f"={text}" if text not in ("", "[]") else ""))
        command = _commands(program.virtctl)[path.strip()]
        assert _own_flags(command) == sorted(wanted + _HIDDEN.get(path, []) + _OURS.get(path, [])), path
