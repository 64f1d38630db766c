"""What the API server serves: resource definitions, and the generic operations on any of them.

``definition`` and ``context`` are the contract with the packages that supply kinds (built-in ones and
those of custom resource definitions); everything else here works on any definition alike.
"""
