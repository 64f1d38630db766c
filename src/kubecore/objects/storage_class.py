"""The storage class that a claim or volume names."""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from kubecore.objects import meta

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
"""The older way to name a class, which has precedence over the field."""


def class_of(obj: JsonObject) -> str:
    """The name of the class of a claim or volume; empty for none.

    All who ask must get the same answer: else claims would count against the quota of one class and get a
    volume of another.
    """
    annotations = meta.annotations(obj)
    if CLASS_ANNOTATION in annotations:
        return annotations[CLASS_ANNOTATION]
    return get_str(obj, "spec", "storageClassName")
