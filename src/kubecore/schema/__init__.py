"""Structural schemas: pruning, defaulting, validation with Kubernetes' wording. Pure, no I/O.

``model`` has the views everything else walks; each verb has its own module.
"""

from .defaulting import default
from .embedded import validate_embedded
from .list_types import validate_list_types
from .model import Schema, SchemaSet, custom_resource_schema
from .pruning import prune
from .structural import check_structural
from .validation import validate

__all__ = [
    "Schema",
    "SchemaSet",
    "check_structural",
    "custom_resource_schema",
    "default",
    "prune",
    "validate",
    "validate_embedded",
    "validate_list_types",
]
