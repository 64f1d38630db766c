"""The launcher pod of a virtual machine instance, rendered from objects alone.

`render.render_launcher_pod` takes the admitted instance, the install-wide settings and the objects that
the instance refers to, and returns the pod. Nothing here talks to an API. One module per concern:
metadata, placement, resources, volumes, containers, probes, network annotations, sidecars; `attachment`
renders the pods that bring hotplugged volumes to the node.
"""
