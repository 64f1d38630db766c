"""Writes the status of a DataVolume, and the events about it."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.runtime import EventRecorder
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeStatus
from virtplane.cluster.objects import described, status_patch
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.datavolume import conditions, decisions
from virtplane.storage.cdi.controller.datavolume.conditions import Problem, State
from virtplane.storage.cdi.controller.datavolume.decisions import Phase, Situation
from virtplane.storage.cdi.controller.workers.observed import COMPLETED, SCRATCH_REASON
from virtplane.storage.csi.parts import patch


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Tells users how far a DataVolume is."""

    client: Client
    recorder: EventRecorder

    async def write(
        self, situation: Situation, wanted: Phase, problem: Problem | None = None, known: str | None = None
    ) -> bool:
        """Write the status; whether that was news. `known` is the progress. Raises StatusError."""
        volume = situation.volume
        states = conditions.states(wanted.name, situation.claim, situation.uses_populator, problem)
        document = _document(situation, wanted, states, known)
        operations = status_patch(volume, DataVolumeStatus, volume.status, document)
        written = await patch(self.client, resources.DATA_VOLUMES, volume, operations, "status")
        if written is None:
            return False
        self._tell(volume, wanted, states)
        return True

    def warn(self, volume: DataVolume, reason: str, text: str) -> None:
        """Record a warning about a DataVolume."""
        self.recorder.event(described(volume), "Warning", reason, text)

    def _tell(self, volume: DataVolume, wanted: Phase, states: tuple[State, ...]) -> None:
        if wanted.notice is not None and wanted.name != volume.status.phase:
            notice = wanted.notice
            self.recorder.event(described(volume), notice.kind, notice.reason, notice.message)
        known = {each.type: each for each in volume.status.conditions}
        for state in states:
            if not conditions.changed(known.get(state.type), state):
                continue
            if state.type == conditions.BOUND and state.reason:
                self.recorder.event(described(volume), "Normal", state.reason, state.message)
            elif _is_failure(state):
                self.warn(volume, state.reason, state.message)


def _is_failure(state: State) -> bool:
    """Whether the worker stopped for a reason that its user should know of."""
    if state.type != conditions.RUNNING or state.status != "False" or not state.message:
        return False
    return state.reason not in ("", COMPLETED, SCRATCH_REASON, claims.PENDING)


def _document(
    situation: Situation, wanted: Phase, states: tuple[State, ...], known: str | None
) -> JsonObject:
    volume, claim = situation.volume, situation.claim
    found: JsonObject = {
        "phase": wanted.name,
        "progress": decisions.progress(situation, wanted, known),
        "conditions": conditions.documents(volume.status.conditions, states, times.now_rfc3339()),
    }
    if claim is not None:
        found["claimName"] = claim.metadata.name
        restarts = claims.value(claim, names.POD_RESTARTS)
        found["restartCount"] = int(restarts) if restarts.isdecimal() and len(restarts) < 10 else 0
    return {name: value for name, value in found.items() if value}
