"""The Containerized Data Importer: volumes that are filled with content (decision 031).

`apiserver` is cdi-apiserver: webhooks, and tokens for uploads. `controller` has the controllers, a folder for
each family of them; `importer`, `uploadserver` and `cloner` are the worker programs that move bytes, `poller`
asks registries whether images have changed.

`rendering` makes the spec of a claim of what a DataVolume asks for, `sizes` knows how much of a volume its
file system takes. `tokens` prove to controllers and to the upload proxy what a user may; `clone_rights` says
who may clone what. `starting` starts the worker programs, `ending` ends them when their pods go, `buffers`
keeps what they free for their next pieces.
"""
