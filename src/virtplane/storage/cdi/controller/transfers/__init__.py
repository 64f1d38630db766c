"""ObjectTransfers: a claim or a DataVolume moves to another name or namespace, with its volume.

`decisions` says what keeps a transfer waiting and whose a volume is, `claims` and `data_volumes` take the
steps, `reconciler` keeps phase and condition. Everything is read from the server, not from caches: a step
taken on old facts could lose a volume.
"""
