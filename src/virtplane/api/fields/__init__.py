"""What each field of the accepted API does today: the one table behind warnings and ``docs/fields.md``.

``state`` defines an entry. ``instance``, ``devices``, ``volumes``, ``machine``, ``instancetypes``,
``installation``, ``operations``, ``hostpath`` and ``cdi`` hold the entries; ``kinds`` combines them per kind.
``warnings`` finds the fields of a document that have no effect, ``structs`` lists the fields of the API
types, ``page`` renders docs/fields.md.

Paths are those of the API, with ``[]`` after lists of objects: ``domain.devices.disks[].cache``. Lists and
maps of plain values count as one field. Every field needs an entry of its own, or an enclosing object's
entry that covers the whole object: without effect (`warns`, `refused`) or passed through unchanged
(`copied`).
"""
