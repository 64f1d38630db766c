"""RuntimeClasses: the handler's name, and where pods of the class may run."""

from __future__ import annotations

from kindling.apiserver.kinds.core.pods.placement import TOLERATIONS
from kindling.apiserver.kinds.machinery.fields import LABEL, always, document, given, labels, may

validate_class = document(
    always("handler", "", LABEL),
    given("scheduling", may("nodeSelector", labels), may("tolerations", TOLERATIONS)),
)
"""The handler's name, and where pods of the class may go."""
