"""The controllers that run worker pods for claims, and say in annotations of the claims how far they are.

`pods` is what is read of pods, `observed` what a pod's status means for its claim (pure), `checkpoints` the
stages of a multi-stage import (pure), `starting` makes pods and what belongs to them, `keys` names the claims
that a change concerns. `copies` says which claims may be copied into which. `certificates` issues those of
upload servers; `importer`, `upload` and `cloning` are the reconcilers.
"""
