"""Eviction of pods: because the node runs out of something, or because they use more disk than they may.

`thresholds` says when (pure), `ranking` whom and with which words (pure), `limits` finds pods beyond their
own limits (pure); `manager` looks regularly and acts.
"""
