"""The snapshot controller: VolumeSnapshots get contents, and both stay bound to each other.

It acts where virt-operator has installed the definitions of the snapshot API, because the cluster had none
(decision 027), and nowhere else: two snapshot controllers would work against each other. `decisions` is pure,
`snapshots` and `contents` act, `component` runs them. What a driver does is `virtplane.storage.csi`'s.
"""
