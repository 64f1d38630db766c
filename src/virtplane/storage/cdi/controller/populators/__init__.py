"""Claims that name a VolumeImportSource or a VolumeUploadSource.

A prime claim is filled in the place of such a claim; when it is whole, its volume is given to the claim that
was asked for. So nobody ever uses a volume that is half written. `decisions` is pure, `reconciler` acts,
`kinds` says what differs between the sources, `claim_events` passes on what happens to prime claims.
"""
