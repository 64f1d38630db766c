"""What the demo guest does with cloud-init's user data: its own scripts, run by busybox in a root."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.support.guest_root import make_guest_root

from virtplane.guest import initramfs

_ETC = Path(initramfs.__file__).parent / "rootfs/etc"
_BUSYBOX = shutil.which("busybox")

pytestmark = pytest.mark.skipif(_BUSYBOX is None, reason="busybox is not installed")


def flat(text: str, folder: Path) -> list[str]:
    """The lines that the guest makes of a YAML document."""
    document = folder / "document"
    document.write_text(text)
    command = [str(_BUSYBOX), "awk", "-f", str(_ETC / "yaml.awk"), str(document)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def flattened(value: object, path: str = "") -> list[str]:
    """The same lines by a real parser."""
    if isinstance(value, dict | list) and not value:
        return [path]
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [
            line for key, item in items for line in flattened(item, f"{path}.{key}" if path else str(key))
        ]
    text = str(value).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    return [f"{path}\t{text}"]


_DOCUMENT = r"""#cloud-config
hostname: demo   # its name
user: fedora
password: 'it''s # not a comment'
chpasswd: {expire: "False", list: x}
ssh_authorized_keys:
- ssh-rsa AAA a@b
- "ssh-ed25519 B\tc \"quoted\" \\ end"
users:
  - default
  - name: alice
    groups: [wheel, adm, 'a''s, b', "c\", d"]
    ssh_authorized_keys:
      - key1
  -
    name: bob
write_files:
  - path: /etc/x
    permissions: '0600'
    content: |
      line 1
        indented: yes # no comment
      back\slash	tab

      last
  - content: >-
      folded
      text

      new line
    path: /y
  - path: /z
    content: |+
      kept

  - path: /w
    content: |-
      stripped
runcmd:
  - [ls, -l, "/a, b"]
  - echo x >/z; echo "y"
  - - nested
    - list
empty: []
none: {}
last: "http://a:80/#b"
"""


def test_the_subset_of_yaml_means_what_yaml_means(tmp_path: Path) -> None:
    assert flat(_DOCUMENT, tmp_path) == flattened(yaml.load(_DOCUMENT, yaml.BaseLoader))


@pytest.mark.parametrize(
    "line", ["key: &anchor x", "key: *alias", "key: !tag x", "key: 'open", "- a: [x, [y]]", "just words"]
)
def test_what_is_beyond_the_subset_is_told(tmp_path: Path, line: str) -> None:
    said = flat(f"first: 1\n{line}\n", tmp_path)
    assert said[0] == "first\t1"
    assert any(found.startswith("!\t2: ") for found in said)


@dataclass
class Guest:
    """A root with busybox and the guest's own files."""

    root: Path

    def obey(self, user_data: str) -> list[str]:
        """Run the guest's script; what it said on the console."""
        seed = self.root / "run/seed"
        seed.mkdir(exist_ok=True)
        (seed / "user-data").write_text(user_data)
        console = self.root / "dev/console"
        console.write_text("")
        # A UTS namespace of its own, because the script sets the name.
        command = ["unshare", "--uts", f"--root={self.root}", "/bin/sh", "-c"]
        script = "/etc/cloudconfig /run/seed && hostname >/run/hostname"
        subprocess.run([*command, script], env={"PATH": "/bin"}, check=True, capture_output=True, timeout=60)
        return [line.removeprefix("cloud-init: ") for line in console.read_text().splitlines()]

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def account(self, name: str, file: str = "passwd") -> list[str]:
        lines = [line.split(":") for line in self.read(f"/etc/{file}").splitlines()]
        return next((fields for fields in lines if fields[0] == name), [])

    def knows(self, name: str, password: str) -> bool:
        """Whether a password is that of a user."""
        _, kind, salt, _ = self.account(name, "shadow")[1].split("$")
        assert kind == "6"
        command = [str(_BUSYBOX), "mkpasswd", "-m", "sha512", "-S", salt, password]
        made = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return made == self.account(name, "shadow")[1]


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    make_guest_root(tmp_path)
    return Guest(tmp_path)


def test_the_default_user_gets_password_and_keys(guest: Guest) -> None:
    said = guest.obey(
        "#cloud-config\nhostname: fine\nuser: fedora\npassword: s3'cret\n"
        "chpasswd: {expire: False}\nssh_authorized_keys:\n  - ssh-ed25519 A me\n"
    )
    assert said == []
    assert guest.read("/run/hostname") == "fine\n"
    assert guest.account("fedora") == ["fedora", "x", "1000", "1000", "", "/home/fedora", "/bin/sh"]
    assert guest.knows("fedora", "s3'cret") and not guest.knows("root", "s3'cret")
    assert guest.knows("root", "virtplane")
    keys = guest.root / "home/fedora/.ssh/authorized_keys"
    assert keys.read_text() == "ssh-ed25519 A me\n"
    assert (keys.stat().st_uid, keys.stat().st_mode & 0o777) == (1000, 0o600)


def test_without_a_user_the_password_and_the_keys_are_roots(guest: Guest) -> None:
    assert guest.obey("#cloud-config\npassword: other\nssh_authorized_keys: [k]\n") == []
    assert guest.knows("root", "other")
    assert guest.read("/root/.ssh/authorized_keys") == "k\n"


def test_users_are_made_as_they_are_described(guest: Guest) -> None:
    said = guest.obey(
        "#cloud-config\nusers:\n  - default\n  - name: alice\n    uid: 1234\n    gecos: 'A: B'\n"
        "    sudo: ALL=(ALL) NOPASSWD:ALL\n    shell: /bin/bash\n    plain_text_passwd: pw\n"
        "    ssh_authorized_keys:\n      - k1\n      - k2\n  - bob\n  - name: '../evil'\n"
    )
    assert guest.account("alice") == ["alice", "x", "1234", "1234", "A B", "/home/alice", "/bin/sh"]
    assert guest.knows("alice", "pw")
    assert guest.read("/home/alice/.ssh/authorized_keys") == "k1\nk2\n"
    assert guest.account("bob")[2] == "1235" and guest.account("bob", "shadow")[1] == "!"
    assert said == [
        "users.1.shell: not obeyed, there is no /bin/bash",
        "users.1.sudo: not obeyed",
        "user ../evil: not obeyed, not a user's name",
    ]


@pytest.mark.parametrize(
    "form",
    [
        "  list: |\n    root:one:two\n    alice:three\n",
        "  list:\n    - root:one:two\n    - alice:three\n",
        "  users:\n    - name: root\n      password: one:two\n    - {name: alice, password: three}\n",
    ],
    ids=["text", "list", "users"],
)
def test_chpasswd_sets_passwords(guest: Guest, form: str) -> None:
    said = guest.obey(f"#cloud-config\nusers: [alice]\nchpasswd:\n  expire: false\n{form}")
    assert said == []
    assert guest.knows("root", "one:two") and guest.knows("alice", "three")


def test_a_password_for_nobody_is_told(guest: Guest) -> None:
    said = guest.obey("#cloud-config\nchpasswd:\n  expire: true\n  list: |\n    carol:x\n")
    assert said == [
        "chpasswd.expire: not obeyed, passwords do not expire",
        "password of carol: not obeyed, there is no such user",
    ]


def test_files_are_written_with_content_mode_and_owner(guest: Guest) -> None:
    packed = base64.b64encode(gzip.compress(b"packed\n")).decode()
    said = guest.obey(
        "#cloud-config\nusers: [alice]\nwrite_files:\n"
        "  - path: /srv/a/b\n    content: |\n      one\\two %s\n        $HOME\n    permissions: '0640'\n"
        "    owner: alice:alice\n"
        "  - path: /srv/a/b\n    append: true\n    content: more\n"
        f"  - path: /srv/c\n    encoding: b64\n    content: {base64.b64encode(b'plain').decode()}\n"
        f"  - path: /srv/d\n    encoding: gz+b64\n    content: {packed}\n"
        "  - path: relative\n    content: x\n"
        "  - path: /srv/e\n    encoding: rot13\n    content: x\n    defer: true\n"
    )
    assert guest.read("/srv/a/b") == "one\\two %s\n  $HOME\nmore"
    # The second entry set its own mode and kept the owner.
    status = (guest.root / "srv/a/b").stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o644, 1000)
    assert (guest.read("/srv/c"), guest.read("/srv/d"), guest.read("/srv/e")) == ("plain", "packed\n", "")
    assert said == [
        "write_files.4.path: not obeyed, relative is not an absolute path",
        "write_files.5.defer: not obeyed",
        "write_files.5.encoding: not obeyed, /srv/e is empty",
    ]


def test_commands_run_last_as_lines_or_as_words(guest: Guest) -> None:
    said = guest.obey(
        """#cloud-config
runcmd:
  - cat /written >/run/one
  - [sh, -c, 'echo "$0" >/run/two', "it's $HOME"]
  - key: value
write_files:
  - {path: /written, content: early}
"""
    )
    assert (guest.read("/run/one"), guest.read("/run/two")) == ("early", "it's $HOME\n")
    assert said == ["runcmd.2: not obeyed, neither a string nor a list"]


def test_packages_are_refused_and_unknown_keys_named_aloud(guest: Guest) -> None:
    said = guest.obey("#cloud-config\npackages: [vim]\nntp:\n  enabled: true\nbad: &x y\n")
    assert said == [
        "line 5: bad: &x y: not understood",
        "packages: refused, this guest has no package manager; boot a distribution's image for that",
        "ntp: not obeyed",
    ]


def test_a_script_is_run_and_other_user_data_is_told(guest: Guest) -> None:
    assert guest.obey("#!/bin/sh\necho ran >/run/ran\n") == []
    assert guest.read("/run/ran") == "ran\n"
    assert guest.obey("Content-Type: multipart/mixed\n") == [
        "user data is neither a script nor #cloud-config: not obeyed"
    ]


def test_nothing_of_the_user_data_stays(guest: Guest) -> None:
    guest.obey("#cloud-config\nusers: [alice]\nchpasswd: {list: 'alice:s3cret'}\npassword: s3cret\n")
    run = [path for path in (guest.root / "run").rglob("*") if path.is_file() and path.name != "user-data"]
    assert [path for path in run if "s3cret" in path.read_text()] == []
