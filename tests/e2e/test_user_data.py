"""cloud-init's user data in the demo's guest, from the manifest to the guest's shell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.e2e.clusters import Cluster, Machine, manifest
from tests.support.clusters import clean_up

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(120)]

_USER_DATA = """#cloud-config
hostname: obedient
users:
  - name: alice
    plain_text_passwd: s3cret
write_files:
  - path: /srv/note
    owner: alice
    permissions: '0600'
    content: |
      line one
        line two
  - path: /bin/setsebool
    permissions: '0755'
    content: |
      #!/bin/sh
      echo "$@" > /srv/switched
runcmd:
  - [sh, -c, 'cp /srv/note /srv/copy']
  - [ setsebool, -P, virt_qemu_ga_manage_ssh, on ]
packages:
  - vim
"""


@pytest.fixture
def machine(cluster: Cluster) -> Iterator[Machine]:
    """A machine with that user data."""
    wanted = manifest("obedient", grace=1)
    volumes = wanted["spec"]["template"]["spec"]["volumes"]
    volumes[1]["cloudInitNoCloud"]["userData"] = _USER_DATA
    made = cluster.create(wanted)
    yield made
    clean_up([made])


@pytest.mark.feature("VMC-58", "VMC-62")
def test_the_guest_obeys_its_user_data_and_tells_what_it_does_not(machine: Machine) -> None:
    machine.wait_running()
    with machine.console() as console:
        assert console.run("hostname") == "obedient"
        assert console.run("cat /srv/copy") == "line one\n  line two"
        # There is no SELinux in it: a script of its user data stands in for the program.
        assert console.run("cat /srv/switched") == "-P virt_qemu_ga_manage_ssh on"
        assert console.run("stat -c '%U %a' /srv/note") == "alice 600"
        assert console.run("cat /run/nocloud.log").startswith("cloud-init: packages: refused")
        assert console.run("su alice -c id").startswith("uid=1000(alice)")
