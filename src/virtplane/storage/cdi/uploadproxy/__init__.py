"""cdi-uploadproxy: passes what users upload on to the upload server of their claim.

`targets` says which claim a token is for and whether it can take an upload, `proxy` has the paths and moves
the bytes, `component` is what runs.
"""
