"""What each field of the accepted API does today: the one table behind warnings and ``docs/fields.md``.

``state`` says what an entry is. ``instance``, ``devices``, ``volumes``, ``machine``, ``instancetypes``,
``installation`` and ``copies`` hold the entries, and ``kinds`` puts them together for each kind. ``warnings``
finds what to warn of in a document, ``structs`` knows the fields of the types, ``page`` writes the page.

Paths are those of the API, with ``[]`` behind lists of objects: ``domain.devices.disks[].cache``. Lists and
maps of plain values are one field. Every field needs an entry of its own, or one of an object around it that
has no effect as a whole (`warns`, `refused`) or is handed on as a whole (`copied`).
"""
