"""JSON patch, merge patch, strategic merge patch and server-side apply. Pure, no I/O.

Every function takes documents and returns new ones; parts that did not change are shared with the
original, so callers must not change either in place.
"""

from kubecore.patch.jsonpatch import JsonPatchError, apply_json_patch, decode_json_patch
from kubecore.patch.mergepatch import apply_merge_patch, decode_merge_patch
from kubecore.patch.strategic import decode_strategic_patch, strategic_merge

__all__ = [
    "JsonPatchError",
    "apply_json_patch",
    "apply_merge_patch",
    "decode_json_patch",
    "decode_merge_patch",
    "decode_strategic_patch",
    "strategic_merge",
]
