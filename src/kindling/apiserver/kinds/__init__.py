"""The built-in kinds, one folder per API group; ``core`` has a folder or module for each of its kinds.

A group's folder holds, as far as its kinds need them: ``strategy`` (defaults, what a write prepares, the
columns of tables and, at its end, ``definitions()``), ``validation`` (pure functions), ``defaults``,
``conversion``, ``table``. To add a kind, write its strategy and its validation, and list it in its group's
``definitions()``; ``served`` lists the groups.

What all groups use: ``schemas`` (the published OpenAPI definitions, by which objects are decoded and pruned),
``encoding`` (the JSON that Kubernetes' own encoder would write, and reading protobuf) and ``machinery``
(the base strategy, checks, printing of tables). Kinds that live elsewhere: CustomResourceDefinition
(``crds``), reviews and tokens (``auth``).

Nothing is imported here: ``schemas.definitions`` also runs where the package is built, without a server's
libraries.
"""
