"""When a guest is asked again to release a device."""

from __future__ import annotations

import pytest

from virtplane.compute.handler.libvirtd.releases import Releases


def test_a_guest_is_asked_again_when_it_has_answered_or_stays_silent() -> None:
    now = 100.0
    releases = Releases(lambda: now)
    assert not releases.is_open("ua-disk")
    with releases.asking("ua-disk"):
        assert releases.is_open("ua-disk")
    assert releases.is_open("ua-disk")
    assert not releases.is_open("ua-other")
    releases.end("ua-disk")
    assert not releases.is_open("ua-disk")
    with releases.asking("ua-disk"):
        now += 9.0
    assert releases.is_open("ua-disk")
    now += 2.0
    assert not releases.is_open("ua-disk")


def test_a_request_that_failed_is_none() -> None:
    releases = Releases()
    with pytest.raises(OSError), releases.asking("ua-disk"):
        raise OSError("the daemon is gone")
    assert not releases.is_open("ua-disk")


def test_devices_that_a_libvirt_invents_are_forgotten() -> None:
    now = 0.0
    releases = Releases(lambda: now)
    for number in range(1000):
        with releases.asking(f"ua-invented-{number}"):
            now += 1.0
    assert len(releases._asked) <= 11
    assert releases.is_open("ua-invented-999")
