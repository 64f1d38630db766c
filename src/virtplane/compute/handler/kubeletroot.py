"""Whether virt-handler sees the folders of its node's kubelet, and where they are if it does not."""

from __future__ import annotations

import re
from pathlib import Path

from kubecore.runtime import CannotRun

_HOSTS_FILE = re.compile(r"^(?P<root>.*)/pods/(?P<uid>[^/]+)/etc-hosts$")


def require(pods: Path, pod_uid: str, node: str, mountinfo: str) -> None:
    """Raise CannotRun unless `pods` is the folder in which the kubelet keeps its pods, this one among them.

    `mountinfo` is the text of ``/proc/self/mountinfo``. Without a pod (a test, another supervisor) there is
    nothing to compare with.
    """
    if not pod_uid or (pods / pod_uid).is_dir():
        return
    found = root_in(mountinfo, pod_uid)
    where = f"its file systems say {found}" if found else "where could not be found out"
    raise CannotRun(
        f"The kubelet of node {node} keeps its pods elsewhere than virtplane was told: {where}."
        f" Look at the kubelet's --root-dir, then: virtplane install --kubelet-root {found or 'DIR'}"
    )


def root_in(mountinfo: str, pod_uid: str) -> str:
    """The kubelet's root folder, from the place of this pod's ``/etc/hosts``; empty where that tells nothing.

    The path is relative to its file system, so it is a hint, not a fact: a kubelet's root on a disk of its
    own shows without the place where the disk is mounted.
    """
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        found = _HOSTS_FILE.match(fields[3]) if len(fields) > 4 and fields[4] == "/etc/hosts" else None
        if found and found["uid"] == pod_uid:
            return found["root"]
    return ""
