"""Volumes that come to a guest, and leave it, while its launcher runs.

virt-controller's attachment pod holds the claims on the node. From there:

- ``sources``: a claim's disk, found in the attachment pod without following a path of the tenant's
- ``folder``: what the launcher's pod has of it: a mount of the disk's file, or a device node
- ``permissions``: which block devices the launcher's cgroup may open; cgroup v2 by ``filters``
- ``plugs``: the steps in order, repeated until the guest has what its instance describes
- ``reports``: the phases of ``status.volumeStatus``

The domain's side is ``compute.domain.plugs``. What is plugged is read from the domain, the mount table, the
folder and the cgroup each time, so that any step may be interrupted and repeated. Only that a guest was asked
for a device a moment ago is remembered (``handler.releases``).
"""
