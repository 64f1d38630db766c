"""DataImportCrons: content is imported again whenever its source has changed.

`sources` says what kind of source a cron has and what its digests mean, `polling` asks for the digest, and
`pollers` makes the jobs and pods that ask. `decisions` says how far the current import is and what the status
is, `retention` which imports go; `documents` are the objects that are made. `reconciler` acts, with
`imports` for what is imported, `cleanup` for what a deleted cron leaves.
"""
