"""Virtual machine instances before their guest runs, and after it has ended.

``phases`` decides the next status from the objects at hand, ``storage`` whether volumes are ready,
``exclusive`` which claims are for one guest only, ``volumes`` what volume status says, ``hotplug`` what
attachment pods are needed, ``sockets`` which VSOCK address is free, ``definitions`` which devices a network
has; ``reconciler`` applies it all: ``launchers`` creates launcher pods through ``instancepods``,
``launchersync`` keeps them as the instance says. Between Scheduled and the end the node agent owns the phase.
"""
