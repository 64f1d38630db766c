"""StorageProfiles: what a storage class is good for.

`capabilities` is the table of provisioners, `decisions` says what a profile should be, `reconciler` writes
it.
"""
