"""JSON patch, merge patch, strategic merge patch and server-side apply. Pure, no I/O.

Every function takes documents and returns new ones; parts that did not change are shared with the
original, so callers must not change either in place.

- `jsonpatch`, `mergepatch`, `strategic`: the three patches, each with the decoding of its request body;
- `apply`: server-side apply; `managed`: managedFields, which every write updates;
- `diff`: patches computed from two documents;
- `fieldset`, `field_types` and `typed`: the basis of both: sets of field paths, the ownership rules of a
schema, and comparing and merging documents by them.

This package imports none of them: clients need the patches, and only an API server what rests on schemas.
"""
