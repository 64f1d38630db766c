"""Volumes of pods on a node, laid out in /var/lib/kubelet exactly as a kubelet lays them out.

`manager` sets volumes up and tears them down, with one module for each source. `content` renders the files of
config map, secret and projected volumes (pure); readers of what `atomic_writer` writes see all or none of it.
"""
