"""The hostpath provisioner's CSI driver: volumes in a folder of the node (``virtplane hostpath-driver``).

`identity`, `controller` and `node` answer the calls; `server` serves them. `configuration` reads the pools,
`requests` what a call asks for. A `pool` keeps records of volumes and snapshots; `volumes` and `snapshots`
make and remove them. Below: `images` (files that hold a file system or a disk), `trees` (directories),
`mounts`, `locks`. `recovery` cleans up what a killed driver left, `reserve` keeps full
pools usable, `metrics` reports. `legacy` is the provisioner without CSI; `mounter` mounts pools' claims.
"""
