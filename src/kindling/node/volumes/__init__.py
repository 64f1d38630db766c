"""Volumes of pods on a node, laid out in /var/lib/kubelet exactly as a kubelet lays them out.

`content` renders files of config maps, secrets and their like (pure), `writer` puts them down so that
readers see all or nothing, `manager` sets volumes up and takes them down, one module per source.
"""
