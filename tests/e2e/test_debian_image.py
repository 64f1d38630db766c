"""The Debian disk starts in QEMU, reads its user data, and answers through the guest agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e import plain_qemu
from tests.e2e.commands import ROOT, run
from tests.e2e.failures import NotInTime
from tests.e2e.plain_qemu import Guest
from tests.e2e.support import wait_for

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(900)]

_COMMAND = (sys.executable, "-m", "virtplane.cli.main", "image", "build", "debian", "--state")
_BOOT_SECONDS = 240
"""Under emulation; it takes a minute on two processors that have nothing else to do."""
_VOLUME_BYTES = 4 << 30
_SEEDED = "user data was here"
_USER_DATA = f"""\
#cloud-config
password: virtplane
chpasswd: {{expire: false}}
write_files:
  - path: /etc/seeded
    content: {_SEEDED}
"""


@contextmanager
def guest(image: Path, folder: Path, *, secure_boot: bool = False) -> Iterator[Guest]:
    """A guest on a volume that is bigger than the image, once cloud-init is through."""
    volume, seed = folder / "volume.qcow2", folder / "seed.iso"
    run("qemu-img", "create", "-f", "qcow2", "-F", "qcow2", "-b", image, volume, str(_VOLUME_BYTES))
    plain_qemu.no_cloud(seed, "golden", _USER_DATA)
    with plain_qemu.booted(folder, volume, seed, secure_boot=secure_boot) as started:
        wait_for("the guest agent answers", lambda: started.agent.ask("guest-ping") == {}, _BOOT_SECONDS)
        started.agent.run("cloud-init status --wait", _BOOT_SECONDS)
        yield started


_ON_DEMAND = pytest.mark.skipif(
    "VIRTPLANE_TEST_DEBIAN" not in os.environ, reason="takes minutes; VIRTPLANE_TEST_DEBIAN=1 runs it"
)


@pytest.mark.feature("NEW-10")
def test_it_is_built_once(debian_image: Path) -> None:
    image, state = debian_image, debian_image.parent.parent
    before = image.stat().st_ino
    begun = time.monotonic()
    assert run(*_COMMAND, state, cwd=ROOT).stdout == f"{image}\n"
    assert time.monotonic() - begun < 5
    assert image.stat().st_ino == before
    run("qemu-img", "check", image)


@pytest.mark.feature("NEW-10")
def test_it_starts_by_bios_and_becomes_what_its_user_data_say(debian_image: Path, tmp_path: Path) -> None:
    with guest(debian_image, tmp_path) as started:
        agent = started.agent
        assert agent.ask("guest-get-osinfo")["id"] == "debian"
        assert agent.ask("guest-get-host-name") == {"host-name": "golden"}
        assert agent.run("cat /etc/seeded") == _SEEDED
        (root,) = (each for each in agent.ask("guest-get-fsinfo") if each["mountpoint"] == "/")
        assert root["total-bytes"] > _VOLUME_BYTES * 0.9, "it has grown to its volume"
        addresses = [
            address["ip-address"]
            for interface in agent.ask("guest-network-get-interfaces")
            for address in interface.get("ip-addresses", [])
        ]
        assert "10.0.2.15" in addresses, "by DHCP"
        assert agent.run("systemctl is-system-running --wait", _BOOT_SECONDS) == "running\n"
        assert len(agent.run("cat /etc/machine-id").strip()) == 32
        named = f"grep -rIlF -e '{debian_image.parent}' /etc /var /boot /root || true"
        assert agent.run(named, 120) == "", "nothing in it names where it was built"
        wait_for("somebody can log in", lambda: "golden login:" in started.console(), 30)


@_ON_DEMAND
@pytest.mark.feature("NEW-10")
@pytest.mark.skipif(not (plain_qemu.OVMF / plain_qemu.SECURE_BOOT[0]).exists(), reason="there is no OVMF")
def test_it_starts_by_uefi_with_secure_boot(debian_image: Path, tmp_path: Path) -> None:
    with guest(debian_image, tmp_path, secure_boot=True) as started:
        assert started.agent.run("mokutil --sb-state") == "SecureBoot enabled\n"
        assert started.agent.run("cat /etc/seeded") == _SEEDED
        assert started.agent.run("findmnt --noheadings --output FSTYPE /boot/efi") == "vfat\n"


@_ON_DEMAND
@pytest.mark.feature("NEW-10")
def test_it_starts_again_after_updates_of_grub_and_the_kernel(debian_image: Path, tmp_path: Path) -> None:
    with guest(debian_image, tmp_path) as started:
        agent = started.agent
        before = agent.run("cat /proc/sys/kernel/random/boot_id")
        # What dpkg runs after an update of the packages of GRUB, and after one of the kernel.
        updates = "export PATH=/usr/sbin:/usr/bin:/sbin:/bin; set -e\n"
        updates += "/var/lib/dpkg/info/grub-cloud-amd64.postinst triggered; update-grub\n"
        updates += "grep -c menuentry /boot/grub/grub.cfg"
        assert int(agent.run(updates, _BOOT_SECONDS).split()[-1]) > 1
        agent.run("systemd-run --on-active=1 systemctl reboot")

        def has_rebooted() -> bool:
            try:
                return agent.run("cat /proc/sys/kernel/random/boot_id", 10) != before
            except NotInTime:
                # It went down with the command.
                return False

        wait_for("the guest has started again", has_rebooted, _BOOT_SECONDS)
        assert agent.run("cat /etc/seeded") == _SEEDED


@_ON_DEMAND
def test_a_killed_build_ends_and_leaves_no_image(tmp_path: Path) -> None:
    images = tmp_path / "state/images"
    killed: list[Path] = []

    def installs(left: list[Path]) -> bool:
        return any(path.parents[2] not in left for path in images.glob(".debian-*/private/tree/usr"))

    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            [*_COMMAND, str(tmp_path / "state")],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as building:
            wait_for("packages are installed", partial(installs, killed), 60)
            assert not any(path.exists() for path in killed), "what a killed build has left is removed"
            building.send_signal(number)
        wait_for("no program of it runs", lambda: not _commands_with(str(images)), 10)
        assert not list(images.glob("*.qcow2"))
        killed = list(images.glob(".debian-*"))
    assert killed == [], "one that is only interrupted tidies up itself"


def _commands_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in command:
            found.append(command)
    return found
