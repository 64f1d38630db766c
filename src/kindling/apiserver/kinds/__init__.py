"""The built-in kinds: schemas, defaults, validation, strategies, tables. One module per group or large kind.

``served`` lists what the server wires up. A kind's objects reach its strategy decoded and pruned by its
schema (``schemas``); ``wire`` brings them into the form that Kubernetes' own encoder gives them; modules
named ``*_validation`` are pure. Kinds that live elsewhere: CustomResourceDefinition (``crds``), reviews and
tokens (the server's own).

Nothing is imported here: ``definitions`` also runs where the package is built, without a server's libraries.
"""
