"""The wire: paths, media types, bodies, answers and watches, over aiohttp's low-level server.

Every request goes through ``server``: authentication, impersonation, authorization, then ``resources``
for objects, ``pages`` for everything else, or a proxy. ``resources`` decides which verb is meant; the verbs
are served by ``reading``, ``watch_requests``, ``writing``, ``deleting`` and ``subresources``.
"""
