"""``credentials``: what becomes of a machine and of its secrets."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kubecore.json import JsonObject

from .conftest import FakeServer, Virtctl

_MACHINE = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"
_INSTANCE = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
_SECRETS = "/api/v1/namespaces/default/secrets"
_KEY = "ssh-rsa AAAA"


def _machine(*credentials: JsonObject) -> JsonObject:
    template = {"spec": {"domain": {"devices": {}}, "accessCredentials": list(credentials)}}
    metadata = {"name": "vm", "namespace": "default", "uid": "u"}
    return {"metadata": metadata, "spec": {"runStrategy": "Always", "template": template}}


def _ssh(secret: str, *users: str) -> JsonObject:
    propagation = {"qemuGuestAgent": {"users": list(users)}}
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": propagation}}


def _password(secret: str) -> JsonObject:
    source = {"secret": {"secretName": secret}}
    return {"userPassword": {"source": source, "propagationMethod": {"qemuGuestAgent": {}}}}


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _secret(api: FakeServer, name: str, *, owned: bool = True, **data: str) -> None:
    owners = [{"kind": "VirtualMachine", "name": "vm", "uid": "u", "apiVersion": "kubevirt.io/v1"}]
    metadata = {
        "name": name,
        "namespace": "default",
        "resourceVersion": "7",
        "ownerReferences": owners if owned else [],
    }
    entries = {key: _encoded(value) for key, value in data.items()}
    api.answers["GET", f"{_SECRETS}/{name}"] = (200, {"metadata": metadata, "data": entries})


def _changes(api: FakeServer) -> list[tuple[str, str, object]]:
    """The requests that change something, without their query."""
    return [(method, path.split("?")[0], body) for method, path, body in api.requests if method != "GET"]


def test_a_key_goes_into_the_secret_of_its_user(api: FakeServer, virtctl: Virtctl, tmp_path: Path) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "root"), _ssh("b", "ann", "bob")))
    _secret(api, "b", other="ssh-rsa BBBB")
    (tmp_path / "key").write_text(f"{_KEY} ann@home\n")
    result = virtctl("credentials", "add-ssh-key", "-u", "bob", "-f", str(tmp_path / "key"), "vm")
    assert (result.code, result.out) == (0, 'Successfully added the key to secret "b"\n')
    [(method, path, body)] = _changes(api)
    assert (method, path) == ("PATCH", f"{_SECRETS}/b")
    assert isinstance(body, list)
    assert body[0]["path"].startswith("/data/ssh-key-")
    assert (body[0]["op"], body[0]["value"]) == ("add", _encoded(f"{_KEY} ann@home"))


def test_a_key_that_is_there_already_is_not_added_again(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "root")))
    _secret(api, "a", owned=False, keys=f"ssh-rsa BBBB\n{_KEY} comment\n")
    result = virtctl("credentials", "add-ssh-key", "--user", "root", "--value", _KEY, "vm")
    assert (result.code, result.out) == (0, 'Secret "a" already contains this SSH key.\n')
    assert _changes(api) == []


def test_a_user_without_secret_gets_one_that_belongs_to_the_machine(
    api: FakeServer, virtctl: Virtctl
) -> None:
    api.answers["GET", _MACHINE] = (200, _machine())
    api.refuse("GET", _INSTANCE, 404, "not found")
    api.answers["GET", _INSTANCE][1]["reason"] = "NotFound"
    api.answers["POST", _SECRETS] = (201, {"metadata": {"name": "vm-ssh-key-x"}})
    assert virtctl("credentials", "add-ssh-key", "--user", "ann", "--value", _KEY, "vm").code == 0
    made, patched = _changes(api)
    secret = made[2]
    assert isinstance(secret, dict) and isinstance(patched[2], list)
    assert secret["metadata"]["generateName"] == "vm-ssh-key-"
    assert secret["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "name": "vm",
            "uid": "u",
            "controller": True,
        }
    ]
    assert list(secret["data"].values()) == [_encoded(_KEY)]
    assert patched[:2] == ("PATCH", _MACHINE)
    assert patched[2] == [
        {
            "op": "add",
            "path": "/spec/template/spec/accessCredentials/-",
            "value": _ssh("vm-ssh-key-x", "ann"),
        }
    ]


def test_a_secret_whose_machine_cannot_take_it_is_not_left(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine())
    api.answers["POST", _SECRETS] = (201, {"metadata": {"name": "s"}})
    api.refuse("PATCH", _MACHINE, 422, "the server rejected it")
    line = f"credentials add-ssh-key --force --create-secret --user ann --value {_KEY.replace(' ', '_')} vm"
    result = virtctl(*line.split())
    assert (result.code, result.err) == (1, "error patching virtual machine: the server rejected it\n")
    first, second = [body for method, _, body in _changes(api) if method == "PATCH"]
    assert isinstance(first, list) and isinstance(second, list)
    # The list of credentials may be missing; it is made only where it is.
    path = "/spec/template/spec/accessCredentials"
    assert second[:2] == [
        {"op": "test", "path": path, "value": None},
        {"op": "add", "path": path, "value": []},
    ]
    assert second[2:] == first
    assert _changes(api)[-1][:2] == ("DELETE", f"{_SECRETS}/s")


def test_keys_of_all_secrets_of_a_user_are_removed_and_others_stay(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "ann"), _ssh("b", "ann"), _ssh("gone", "ann")))
    _secret(api, "a", one=f"{_KEY} comment\n", two=f"ssh-rsa AAAAB\n\n{_KEY}\n", three="ssh-rsa CCCC")
    _secret(api, "b", three="ssh-rsa CCCC")
    api.refuse("GET", f"{_SECRETS}/gone", 404, "not found")
    api.answers["GET", f"{_SECRETS}/gone"][1]["reason"] = "NotFound"
    result = virtctl("credentials", "remove-ssh-key", "--user", "ann", "--value", _KEY, "vm")
    assert (result.code, result.err) == (0, "")
    body = {"metadata": {"resourceVersion": "7"}, "data": {"one": None, "two": _encoded("ssh-rsa AAAAB")}}
    assert _changes(api) == [("PATCH", f"{_SECRETS}/a", body)]


def test_a_secret_that_changes_meanwhile_is_read_again(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "ann")))
    _secret(api, "a", one=_KEY)
    api.refuse("PATCH", f"{_SECRETS}/a", 409, "the object has been modified")
    result = virtctl("credentials", "remove-ssh-key", "--user", "ann", "--value", _KEY, "vm")
    assert (result.code, result.err) == (1, "the object has been modified\n")
    assert len(_changes(api)) == 5


def test_a_password_is_the_entry_of_its_user(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "ann"), _password("p")))
    _secret(api, "p")
    result = virtctl("credentials", "set-password", "--user", "ann", "-p", "secret", "vm")
    assert (result.code, result.out) == (0, 'Successfully set password in secret "p"\n')
    operation = {"op": "add", "path": "/data/ann", "value": _encoded("secret")}
    assert _changes(api) == [("PATCH", f"{_SECRETS}/p", [operation])]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("add-ssh-key --user ann --value k", "accepts 1 arg(s), received 0"),
        ("add-ssh-key --value k vm", 'required flag(s) "user" not set'),
        ("set-password vm", 'required flag(s) "password", "user" not set'),
        (
            "add-ssh-key --user ann vm",
            "error getting ssh key: one of --file, or --value must be specified",
        ),
        (
            "add-ssh-key --user ann --file /nowhere vm",
            "error getting ssh key: open /nowhere: no such file or directory",
        ),
        (
            "add-ssh-key --user ann --file f --value k vm",
            "if any flags in the group [file value] are set none of the others can be;"
            " [file value] were all set",
        ),
        (
            "add-ssh-key --user ann --create-secret --update-secret --value k vm",
            "if any flags in the group [create-secret update-secret] are set none of the others can be;"
            " [create-secret update-secret] were all set",
        ),
        ("add-ssh-key --user eve --update-secret --value k vm", "no secrets specified for user: eve"),
        (
            "add-ssh-key --user ann --create-secret --value k vm",
            "virtual machine vm is running. Use --force flag to update a running VM,"
            " it will take effect after restart",
        ),
        (
            "add-ssh-key --user ann --value k vm",
            "multiple secrets specified, use option --secret to specify which secret to modify",
        ),
        ("add-ssh-key --user ann --secret x --value k vm", "secret x was not assigned"),
        (
            "add-ssh-key --user ann --secret a --value k vm",
            "secret a does not have an owner reference pointing to VM vm",
        ),
        ("remove-ssh-key --user ann --secret x --value k vm", "secret x is not associated with user ann"),
        (
            "remove-ssh-key --user ann --secret a --value k vm",
            "secret a does not have an owner reference pointing to VM vm",
        ),
        (
            "set-password --user ann --password p vm",
            "no secrets assigned to UserPassword AccessCredentials",
        ),
        ("lose vm", 'unknown command "lose" for "virtctl credentials"'),
    ],
)
def test_credentials_that_cannot_be_changed_are_told_and_left(
    api: FakeServer, virtctl: Virtctl, line: str, said: str
) -> None:
    api.answers["GET", _MACHINE] = (200, _machine(_ssh("a", "ann"), _ssh("b", "ann")))
    _secret(api, "a", owned=False, one="ssh-rsa BBBB")
    result = virtctl("credentials", *line.split())
    assert (result.code, result.out, result.err) == (1, "", f"{said}\n")
    assert _changes(api) == []


def test_a_user_without_secrets_has_nothing_to_remove(api: FakeServer, virtctl: Virtctl) -> None:
    api.answers["GET", _MACHINE] = (200, _machine())
    result = virtctl("credentials", "remove-ssh-key", "--user", "ann", "--value", "k", "vm")
    assert (result.code, result.out) == (0, "No secrets associated with user ann\n")


def test_a_machine_that_is_missing_is_told(api: FakeServer, virtctl: Virtctl) -> None:
    api.refuse("GET", _MACHINE, 404, 'virtualmachines.kubevirt.io "vm" not found')
    result = virtctl("credentials", "set-password", "--user", "ann", "--password", "p", "vm")
    said = 'error getting virtual machine: virtualmachines.kubevirt.io "vm" not found\n'
    assert (result.code, result.err) == (1, said)
