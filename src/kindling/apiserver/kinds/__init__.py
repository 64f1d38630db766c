"""The built-in kinds, one module or folder per API group; in ``core`` one for each family of kinds.

A kind has a strategy (defaults, what a write prepares), validation (pure functions and tables), the columns
of its table, and ends with ``definitions()``. A group that fills more than one module is a folder:
``strategy`` (which has ``definitions()``), ``validation`` and, as far as its kinds need them, ``defaults``,
``conversion``, ``table``. To add a kind, write its strategy and its validation, and list it in its group's
``definitions()``; ``served`` lists the groups.

What all groups use: ``schemas`` (the published OpenAPI definitions, by which objects are decoded and pruned),
``encoding`` (the JSON that Kubernetes' own encoder would write, and reading protobuf) and ``machinery``
(the base strategy, checks, printing of tables). Kinds that live elsewhere: CustomResourceDefinition
(``crds``), reviews and tokens (``auth``).

Nothing is imported here: ``schemas.definitions`` also runs where the package is built, without a server's
libraries.
"""
