"""The configuration of a node's containerd, with the plugins disabled that pods do not need."""

from __future__ import annotations

from pathlib import Path

SOCKET = "/run/containerd/containerd.sock"
"""In the node's mount namespace, whose /run is its own."""

STREAM_PORT = 10010
"""Where the node's agent finds exec, attach and port-forward streams, on 127.0.0.1 of the node."""
REGISTRY_HOSTS = "/etc/containerd/certs.d"
"""containerd's usual place for registries' mirrors and authorities: the machine's own, which nodes see."""

_UNUSED_PLUGINS = (
    "io.containerd.grpc.v1.diff-streaming",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.monitor.v1.cgroups",
)


def render_config(node_directory: Path, *, sandbox_image: str, snapshotter: str, restrict_oom: bool) -> str:
    """The configuration file of the containerd whose state is in `node_directory`.

    `restrict_oom` keeps runc from asking for oom scores below the daemon's own, which needs
    CAP_SYS_RESOURCE. Containers get the ownership of their devices from their security context, as
    unprivileged block device users (QEMU among them) expect.
    """
    unused = ", ".join(f'"{plugin}"' for plugin in _UNUSED_PLUGINS)
    return f"""\
version = 2
root = "{node_directory}/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [{unused}]

[grpc]
  address = "{SOCKET}"

[debug]
  level = "warn"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "{STREAM_PORT}"
  stream_idle_timeout = "4h"
  enable_tls_streaming = false
  restrict_oom_score_adj = {str(restrict_oom).lower()}
  device_ownership_from_security_context = true
  disable_apparmor = {str(not Path("/sys/kernel/security/apparmor").exists()).lower()}
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = {str(not Path("/sys/fs/cgroup/hugetlb").exists()).lower()}
  max_container_log_line_size = 16384
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{REGISTRY_HOSTS}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{node_directory}/cni-config"
    max_conf_num = 1
"""
