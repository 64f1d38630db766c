"""Claims that name a VolumeCloneSource: clones of claims and of snapshots.

A temporary claim is made beside the source, by the driver, from a snapshot or by pods that copy; then its
volume is given to the claim that was asked for. `strategy` chooses how and `plans` says in which phases (both
pure), `documents` is what is made on the way, `readiness` whether a source may be read, `tokens` who may
clone from another namespace; `steps` brings one phase further, `populator` all of them in their order.
"""
