"""Whether virt-handler sees the folders of its node's kubelet, and where they are if it does not."""

from __future__ import annotations

import re
from pathlib import Path

from kubecore.runtime import CannotRun

_HOSTS_FILE = re.compile(r"^(?P<root>.*)/pods/(?P<uid>[^/]+)/etc-hosts$")


def require(pods: Path, pod_uid: str, node: str, mountinfo: str) -> None:
    """Raise CannotRun unless `pods` is the kubelet's directory of pods, which contains this pod.

    `mountinfo` is the text of ``/proc/self/mountinfo``. If this process does not run in a pod (in a test,
    say), nothing is checked.
    """
    if not pod_uid or (pods / pod_uid).is_dir():
        return
    found = root_in(mountinfo, pod_uid)
    where = f"its file systems say {found}" if found else "where could not be found out"
    raise CannotRun(
        f"The kubelet of node {node} keeps its pods in another directory than configured: {where}."
        f" Look at the kubelet's --root-dir, then: virtplane install --kubelet-root {found or 'DIR'}"
    )


def root_in(mountinfo: str, pod_uid: str) -> str:
    """The kubelet's root directory, derived from the source of the pod's ``/etc/hosts`` mount; empty if
    unknown.

    The path is relative to the root of its file system, so it is only a hint: if the kubelet's root is on a
    separate disk, the disk's mount point is missing.
    """
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        found = _HOSTS_FILE.match(fields[3]) if len(fields) > 4 and fields[4] == "/etc/hosts" else None
        if found and found["uid"] == pod_uid:
            return found["root"]
    return ""
