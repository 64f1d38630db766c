"""Claims of generic ephemeral volumes: created for a pod and owned by it."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.volumes import claim_templates
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubecore.runtime import DONE, Key, Result

NAME = "ephemeral-volume-controller"


def wanted_claims(pod: JsonObject) -> list[JsonObject]:
    """The claims of the pod's ephemeral volumes; each is named after pod and volume."""
    result = []
    for volume in get_list(pod, "spec", "volumes"):
        template = get_object(volume, "ephemeral").get("volumeClaimTemplate")
        if template is None:
            continue
        metadata: JsonObject = {
            "name": f"{meta.name(pod)}-{volume['name']}",
            "namespace": meta.namespace(pod),
            "ownerReferences": [meta.new_controller_ref(pod, PODS)],
        }
        for field in ("labels", "annotations"):
            if get_object(template, "metadata").get(field):
                metadata[field] = dict(template["metadata"][field])
        result.append(claim_templates.claim(template, metadata))
    return result


class EphemeralVolumes:
    """Keyed by pod."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._pods = environment.manager.informer(PODS)
        self._claims = environment.manager.informer(PERSISTENT_VOLUME_CLAIMS)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._pods, predicate=lambda event, _, pod: bool(wanted_claims(pod)))
        controller.depend(self._claims)

    async def reconcile(self, key: Key) -> Result:
        """Create the missing claims of one pod."""
        pod = self._pods.get(*key)
        if pod is None or meta.is_being_deleted(pod):
            return DONE
        for claim in wanted_claims(pod):
            found = self._claims.get(*meta.key(claim))
            if found is None:
                await self._create(pod, claim)
            elif not meta.is_controlled_by(found, pod):
                self._tell(pod, f'PVC "{meta.name(claim)}" was not created for pod "{key[0]}/{key[1]}"')
        return DONE

    async def _create(self, pod: JsonObject, claim: JsonObject) -> None:
        try:
            await self._client.create(PERSISTENT_VOLUME_CLAIMS, claim)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                return
            self._tell(pod, f"ephemeral volume: create PVC {meta.name(claim)}: {error.message}")
            raise

    def _tell(self, pod: JsonObject, message: str) -> None:
        self._recorder.event(pod, "Warning", "EphemeralVolumeFailed", message)
