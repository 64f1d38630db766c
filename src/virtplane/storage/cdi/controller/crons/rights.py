"""What a cron may read: CDI, which acts for it, may read everything."""

from __future__ import annotations

from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.clone_rights import SourceKind, clone_refusal, service_account


async def refusal(authorizer: Authorizer, cron: DataImportCron) -> str:
    """Why the cron's service account may not clone the claim of another namespace; empty where it may, and
    where the cron's source is none. Raises StatusError, ConnectionFailed.
    """
    source = cron.spec.template.spec.source
    claim = source.pvc if source is not None else None
    own = cron.metadata.namespace
    if claim is None or claim.namespace in ("", own):
        return ""
    user = service_account(own, cron.spec.service_account_name or "default")
    return await clone_refusal(authorizer, user, SourceKind.CLAIM, claim.namespace, claim.name)
