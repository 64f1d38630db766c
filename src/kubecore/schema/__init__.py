"""Structural schemas: pruning, defaulting, validation with Kubernetes' wording. Pure, no I/O.

``model`` has the views everything else walks; each verb has its own module. This package imports none of
them: who reads a schema needs no validation, whose library of regular expressions takes memory.
"""
