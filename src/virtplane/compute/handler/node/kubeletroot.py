"""Whether virt-handler sees the folders of its node's kubelet, and where they are if it does not."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kubecore.mountinfo import mount_points, rows
from kubecore.runtime import CannotRun

_HOSTS_FILE = re.compile(r"^(?P<root>.*)/pods/(?P<uid>[^/]+)/etc-hosts$")


def require(pods: Path, pod_uid: str, node: str, mountinfo: bytes) -> None:
    """Raise CannotRun unless `pods` is the kubelet's directory of pods, which contains this pod.

    The folder behind a mount that the kubelet uses is not enough: what is mounted below it reaches no pod,
    and guests would get empty disks. There the volumes of this pod, its token at least, are not mounted.

    `mountinfo` is the content of ``/proc/self/mountinfo``. If this process does not run in a pod (in a test,
    say), nothing is checked.
    """
    if not pod_uid:
        return
    own = pods / pod_uid
    if own.is_dir():
        if any(point.is_relative_to(own) for point in mount_points(mountinfo)):
            return
        raise CannotRun(
            f"The directory that is configured for the kubelet of node {node} has the kubelet's folders, but"
            " not what the kubelet mounts in them: it may be the source of a mount that the kubelet uses."
            " Look at the kubelet's --root-dir, then: virtplane install --kubelet-root DIR"
        )
    found = root_in(mountinfo, pod_uid)
    where = f"its file systems say {found}" if found else "where could not be found out"
    raise CannotRun(
        f"The kubelet of node {node} keeps its pods in another directory than configured: {where}."
        f" Look at the kubelet's --root-dir, then: virtplane install --kubelet-root {found or 'DIR'}"
    )


def root_in(mountinfo: bytes, pod_uid: str) -> str:
    """The kubelet's root directory, derived from the source of the pod's ``/etc/hosts`` mount; empty if
    unknown.

    The path is relative to the root of its file system, so it is only a hint: if the kubelet's root is on a
    separate disk, the disk's mount point is missing.
    """
    for line in map(os.fsdecode, rows(mountinfo)):
        fields = line.split(" ")
        found = _HOSTS_FILE.match(fields[3]) if len(fields) > 4 and fields[4] == "/etc/hosts" else None
        if found and found["uid"] == pod_uid:
            return found["root"]
    return ""
