"""The upload server: takes one disk or archive from one client over TLS, into one volume, and ends.

It also is the target of clones from pod to pod. `settings` reads the environment, `server` has the paths
and their answers, `main` is the process.
"""
