"""The verbs of virtual machines that are no objects: start, pause, console, add a volume, ...

``refusals`` holds what may not be done (pure), ``lifecycle`` and ``volumes`` the patches that requests
become (pure), ``machines`` and ``instances`` the handlers, ``nodeagent`` the way to virt-handler, ``streams``
the websockets.
"""
