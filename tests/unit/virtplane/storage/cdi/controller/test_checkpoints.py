"""Multi-stage imports: whatever is named when, each checkpoint is copied once and in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.cdi_claims import STORAGE, claim

from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeCheckpoint
from virtplane.storage.cdi.controller.workers.checkpoints import Stages, is_paused, next_stage

ONE, TWO = (
    DataVolumeCheckpoint(previous="", current="one"),
    DataVolumeCheckpoint(previous="one", current="two"),
)


class Import:
    """The annotations of a claim, as they are after each step."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.copied: list[str] = []

    def step(self, stages: Stages) -> bool:
        """One step of the controller; whether it wrote anything."""
        changes = next_stage(claim(annotations=self.annotations), stages)
        for name, value in changes.items():
            self.annotations.pop(name.removeprefix(STORAGE), None)
            if value is not None:
                self.annotations[name.removeprefix(STORAGE)] = value
        return bool(changes)

    def succeed(self) -> None:
        """The pod of the current checkpoint ends well, unless it has before."""
        current = self.annotations.get("checkpoint.current")
        if current is None or self.annotations.get("pod.phase") == "Succeeded":
            return
        self.copied.append(current)
        self.annotations |= {"pod.phase": "Succeeded", "checkpoint.pod.id": f"pod-{current}"}


def test_import_pauses_until_its_user_names_the_next_checkpoint() -> None:
    run = Import()
    assert run.step(Stages([ONE]))
    assert (run.annotations["checkpoint.current"], run.annotations["checkpoint.final"]) == ("one", "false")
    run.succeed()
    assert run.step(Stages([ONE]))
    assert is_paused(claim(annotations=run.annotations))
    assert run.annotations["checkpoint.copied.one"] == "pod-one"
    assert not run.step(Stages([ONE]))
    assert run.step(Stages([ONE, TWO], has_final=True))
    assert not is_paused(claim(annotations=run.annotations))
    assert (run.annotations["checkpoint.current"], run.annotations["pod.phase"]) == ("two", "Unknown")
    run.succeed()
    assert run.step(Stages([ONE, TWO], has_final=True))
    left = {name: text for name, text in run.annotations.items() if name.startswith("checkpoint")}
    assert left == {"checkpoint.done": "true"}
    assert run.annotations["pod.phase"] == "Succeeded"
    assert not run.step(Stages([ONE, TWO], has_final=True))


def test_import_of_one_stage_has_no_checkpoints() -> None:
    assert next_stage(claim(annotations={"pod.phase": "Succeeded"}), Stages()) == {}


@given(st.lists(st.sampled_from(["step", "succeed", "name"]), max_size=60), st.integers(1, 5))
def test_every_order_of_events_copies_each_checkpoint_once(moves: list[str], count: int) -> None:
    names = [f"c{number}" for number in range(count)]
    all_checkpoints = [
        DataVolumeCheckpoint(previous=previous, current=current)
        for previous, current in zip(["", *names], names, strict=False)
    ]
    run, named = Import(), 1
    moves += ["name"] * count + ["step", "succeed"] * (3 * count + 2)
    for move in moves:
        stages = Stages(all_checkpoints[:named], has_final=named == count)
        if move == "step":
            run.step(stages)
        elif move == "succeed":
            run.succeed()
        else:
            named = min(named + 1, count)
    # The last checkpoint may have begun before its user said that it is the final one: that is for the user.
    assert run.copied == names[: len(run.copied)]
    assert len(run.copied) == count or run.annotations.get("checkpoint.done") == "true"
