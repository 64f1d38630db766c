"""JSON patch, merge patch, strategic merge patch and server-side apply. Pure, no I/O.

Every function takes documents and returns new ones; parts that did not change are shared with the
original, so callers must not change either in place.

- `jsonpatch`, `mergepatch`, `strategic`: the three patches, each with the decoding of its request body;
- `apply`: server-side apply; `managed`: managedFields, which every write updates;
- `diff`: patches computed from two documents;
- `fieldset`, `field_types` and `typed`: the basis of both: sets of field paths, the ownership rules of a
schema, and comparing and merging documents by them.
"""

from kubecore.patch.apply import ApplyConflict, apply_object
from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch
from kubecore.patch.managed import Write, track_update
from kubecore.patch.mergepatch import apply_merge_patch, decode_merge_patch
from kubecore.patch.strategic import decode_strategic_patch, strategic_merge

__all__ = [
    "ApplyConflict",
    "JsonPatchError",
    "Write",
    "apply_json_patch",
    "apply_merge_patch",
    "apply_object",
    "decode_json_patch",
    "decode_merge_patch",
    "decode_strategic_patch",
    "strategic_merge",
    "track_update",
]
