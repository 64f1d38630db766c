"""A guest whose root is hostile: what it sends on its network ends nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.clusters import Cluster, Machine, manifest
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def guest(cluster: Cluster) -> Iterator[Machine]:
    """A guest that has booted."""
    machine = cluster.create(manifest("hostile", grace=1))
    try:
        machine.wait_running()
        yield machine
    finally:
        clean_up([machine])


def test_no_dhcp_message_ends_the_launcher_and_the_lease_stays(guest: Machine) -> None:
    before = guest.launcher(), guest.qemu(), guest.uid()
    with guest.console() as console:
        device = console.run("ls /sys/class/net | grep -v lo | head -1")
        for options in (
            "-x 0x35:",
            "-x 0x35:00",
            "-x 0x35:0303",
            "-x 0x32:0a",
            "-x 0x36:0a000263",
            "-r 203.0.113.9",
            "-x 0x3d:" + "ff" * 200,
            "-V " + "x" * 200,
        ):
            console.run(f"udhcpc -i {device} -f -n -q -t 1 -T 1 -s /bin/true {options}", 30)
        for port in (67, 68):
            # In a shell of its own: a job that ends while busybox's shell reads a line may log the user out.
            send = f"tftp -g -r {'A' * 300} -l /dev/null 10.0.2.1 {port} & sleep 1; kill $!; wait"
            console.run(f"sh -c '{send}'", 20)
        lease = console.run(f"udhcpc -i {device} -f -n -q -t 5 -T 2 -s /bin/true 2>&1", 40)
    assert "10.0.2.2" in lease
    assert (guest.launcher(), guest.qemu(), guest.uid()) == before
