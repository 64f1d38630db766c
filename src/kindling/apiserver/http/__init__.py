"""HTTP: paths, media types, request bodies, responses and watches, on aiohttp's low-level server.

Every request goes through ``server``: authentication, impersonation, authorization, then ``resources`` for
objects, ``pages`` for non-resource paths, or a proxy. ``resources`` dispatches on the verb to ``reading``,
``watch_requests``, ``writing``, ``deleting`` and ``subresources``.
"""
