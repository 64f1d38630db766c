"""RuntimeClasses: the handler's name, and where pods of the class may run."""

from __future__ import annotations

from kindling.apiserver.kinds.core.pods.placement import TOLERATIONS
from kindling.apiserver.kinds.machinery import fields as f

validate_class = f.document(
    f.always("handler", "", f.LABEL),
    f.given("scheduling", f.may("nodeSelector", f.labels), f.may("tolerations", TOLERATIONS)),
)
"""The handler's name, and where pods of the class may go."""
