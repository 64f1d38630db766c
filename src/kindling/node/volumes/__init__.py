"""Volumes of pods on a node, laid out in /var/lib/kubelet exactly as a kubelet lays them out.

`manager` sets volumes up and tears them down, with one module for each source. `content` renders the files of
config map, secret and projected volumes (pure); readers of what `atomic_writer` writes see all or none of it.

CSI: `csi` stages, publishes and undoes, with `csi_records` as the memory on disk; `csi_source` says what a
pod wants and `csi_requests` what drivers are asked with; `csi_attachments` waits for volumes to be attached;
`csi_expansion` decides whether a file system must grow and `csi_growth` grows it; `csi_block` holds devices.
`csi_upkeep` and `csi_stats` look after volumes in use. `csi_registry` finds drivers, `csi_node` shows them on
the Node, `csi_limits` keeps their limits up to date. `csi_agent` puts all of it together.
"""
