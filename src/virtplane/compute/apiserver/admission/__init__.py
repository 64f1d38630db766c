"""virt-api's webhooks: defaults (`mutation`), rules (`rules`), and what each kind makes of them (`kinds`).

`review` is all that a server needs; it finds the webhook by its path. Everything is pure apart from
`lookups`, through which webhooks read other objects.
"""

from virtplane.compute.apiserver.admission.review import WEBHOOKS, review
from virtplane.serving.lookups import ClientLookups, Lookups
from virtplane.serving.responses import Response

__all__ = ["WEBHOOKS", "ClientLookups", "Lookups", "Response", "review"]
