"""Power: what users, guests and accidents do to a virtual machine, and what its run strategy makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.e2e.clusters import KUBEVIRT, NAMESPACE, Cluster, Machine, manifest
from tests.e2e.commands import attempt, program
from tests.e2e.processes import kill
from tests.e2e.support import wait_for
from tests.support.clusters import clean_up
from tests.support.starvation import starvation_measured

pytestmark = [pytest.mark.host, pytest.mark.guest, pytest.mark.timeout(150)]

Create = Callable[..., Machine]
_DETECTION_SECONDS = 2.0


@pytest.mark.feature("VML-13", "VML-16", "VML-14", "CTL-26", "CTL-27")
def test_a_paused_guest_stands_still_and_goes_on_where_it_was(cluster: Cluster, new_machine: Create) -> None:
    machine = new_machine("paused")
    machine.wait_running()
    wait_for("the agent is connected", lambda: machine.condition("AgentConnected") == "True", 60)
    with machine.console() as console:
        before = console.run("cat /proc/sys/kernel/random/boot_id")
        # As after a pause of years.
        console.run("date -s @0")
        cluster.virtctl("pause", "vm", "paused")
        wait_for("it is paused", lambda: machine.status() == "Paused", 5)
        assert machine.condition("Paused") == "True"
        console.send("echo still\n")
        assert "still" not in console.watch(1.5)
        cluster.virtctl("unpause", "vm", "paused")
        wait_for("it goes on", lambda: machine.status() == "Running", 5)
        assert machine.condition("Paused") == ""
        console.expect("still", 10)
        console.expect("~ # ", 10)
        assert console.run("cat /proc/sys/kernel/random/boot_id") == before

        def lag_seconds() -> float:
            return time.time() - float(console.run("date +%s"))

        wait_for("its clock is right again", lambda: abs(lag_seconds()) < 5, 30)


@pytest.mark.feature("VML-15")
def test_unpausing_a_guest_that_is_not_paused_is_refused(cluster: Cluster, new_machine: Create) -> None:
    machine = new_machine("unpaused")
    machine.wait_running()
    refused = attempt(program("virtctl"), "unpause", "vm", "unpaused", env=cluster.environment)
    assert refused.returncode != 0
    assert "VMI is not paused" in refused.stderr


@pytest.mark.feature("VML-17", "CTL-22")
def test_a_machine_can_be_started_paused(cluster: Cluster, new_machine: Create) -> None:
    machine = new_machine("halted", strategy="Halted")
    cluster.virtctl("start", "halted", "--paused")
    wait_for("it is paused", lambda: machine.status() == "Paused", 30)
    cluster.virtctl("unpause", "vm", "halted")
    machine.wait_running()


@pytest.mark.feature("VML-05", "VML-06", "VML-09", "CTL-21", "CTL-23", "CTL-25")
def test_start_restart_and_stop_follow_the_table_of_run_strategies(
    cluster: Cluster, new_machine: Create
) -> None:
    machine = new_machine("table", strategy="Halted", grace=20)
    wait_for("it is stopped", lambda: machine.status() == "Stopped", 10)
    assert machine.instance() is None
    cluster.virtctl("start", "table")
    machine.wait_running()
    assert machine.vm()["spec"]["runStrategy"] == "Always"
    first = machine.uid()
    with machine.console():
        # Only a guest that has booted obeys the power button.
        cluster.virtctl("restart", "table")
        machine.wait_restarted(first)
    assert machine.vm()["spec"]["runStrategy"] == "Always"
    cluster.virtctl("stop", "table")
    wait_for("it is stopped", lambda: machine.status() == "Stopped" and not machine.instance(), 30)
    assert machine.vm()["spec"]["runStrategy"] == "Halted"


@pytest.mark.feature("VML-18", "CTL-24")
def test_a_forced_stop_does_not_wait_for_the_guest(cluster: Cluster, new_machine: Create) -> None:
    machine = new_machine("forced", grace=120)
    machine.wait_running()
    cluster.virtctl("stop", "forced", "--grace-period", "0", "--force")
    wait_for("it is stopped", lambda: machine.status() == "Stopped" and not machine.instance(), 15)


@pytest.mark.feature("VML-19")
def test_a_guest_that_ignores_the_power_button_is_cut_off_after_its_grace_period(
    cluster: Cluster, new_machine: Create
) -> None:
    machine = new_machine("stubborn", grace=4)
    machine.wait_running()
    with machine.console() as console:
        console.run("killall acpid")
        begun = time.monotonic()
        cluster.virtctl("stop", "stubborn")
        wait_for("it is stopped", lambda: machine.status() == "Stopped" and not machine.instance(), 20)
    assert time.monotonic() - begun > 3.5


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[dict[str, Machine]]:
    """One machine of each run strategy, all running."""
    strategies = ("Always", "RerunOnFailure", "Once", "Manual")
    made = {each: cluster.create(manifest(each.lower(), strategy=each, grace=1)) for each in strategies}
    try:
        cluster.virtctl("start", "manual")
        for machine in made.values():
            machine.wait_running()
        yield made
    finally:
        clean_up(list(made.values()))


@pytest.mark.feature("VML-02", "VML-03", "VML-04")
def test_a_guest_that_powers_itself_off_is_started_again_only_with_always(fleet: dict[str, Machine]) -> None:
    uids = {strategy: machine.uid() for strategy, machine in fleet.items()}
    for machine in fleet.values():
        with machine.console() as console:
            console.send("poweroff\n")
            console.expect("going down", 20)
    fleet["Always"].wait_restarted(uids["Always"], 60)
    for strategy in ("Once", "Manual"):
        machine = fleet[strategy]
        wait_for(f"{strategy} has ended", partial(has_succeeded, machine), 30)
        assert machine.uid() == uids[strategy]
        # The controller learns it from the instance, as we do.
        wait_for(f"{strategy} is stopped", partial(is_stopped, machine), 5)
    rerun = fleet["RerunOnFailure"]
    wait_for("RerunOnFailure is stopped", lambda: rerun.status() == "Stopped" and not rerun.instance(), 30)
    time.sleep(2)
    assert rerun.instance() is None


def is_stopped(machine: Machine) -> bool:
    """Whether the machine is shown as stopped."""
    return machine.status() == "Stopped"


def has_succeeded(machine: Machine) -> bool:
    """Whether the instance has ended well."""
    return machine.phase() == "Succeeded"


@pytest.mark.timeout(300)
@pytest.mark.feature("VMC-70")
def test_a_machine_for_an_installation_is_created_stopped_and_started_by_its_run_strategy(
    cluster: Cluster,
) -> None:
    """As guides install systems that switch themselves off at the end."""
    wanted = manifest("installation", grace=1)
    wanted["spec"]["running"] = not wanted["spec"].pop("runStrategy")
    machine = cluster.create(wanted)
    try:
        wait_for("it is stopped", lambda: machine.status() == "Stopped", 20)
        assert machine.instance() is None
        path = f"{KUBEVIRT}/namespaces/{NAMESPACE}/virtualmachines/{machine.name}"
        cluster.request("PATCH", path, {"spec": {"running": None, "runStrategy": "RerunOnFailure"}})
        machine.wait_running()
        with machine.console() as console:
            console.send("poweroff\n")
            console.expect("going down", 20)
        wait_for("it is off", lambda: machine.status() == "Stopped" and not machine.instance(), 30)
        cluster.virtctl("start", machine.name)
        machine.wait_running()
        assert "running" not in machine.vm()["spec"]
    finally:
        clean_up([machine])


@pytest.mark.feature("VML-03", "VML-07")
def test_with_rerun_on_failure_a_crash_is_followed_by_another_start(
    cluster: Cluster, fleet: dict[str, Machine]
) -> None:
    machine = fleet["RerunOnFailure"]
    if machine.instance() is None:
        cluster.virtctl("start", machine.name)
    machine.wait_running()
    first = machine.uid()
    kill(machine.qemu())
    machine.wait_restarted(first)
    assert machine.vm()["spec"]["runStrategy"] == "RerunOnFailure"


@pytest.mark.feature("VML-02")
def test_killing_qemu_fails_the_instance_with_a_reason_and_always_brings_it_back(new_machine: Create) -> None:
    machine = new_machine("crashing")
    machine.wait_running()
    first = machine.uid()
    seconds = _seconds_to_failure(machine, machine.qemu())
    assert seconds < _DETECTION_SECONDS
    told = ("Warning", "Stopped", "The VirtualMachineInstance crashed.")
    wait_for(
        "the event tells why",
        lambda: told in {(event["type"], event["reason"], event["message"]) for event in machine.events()},
        10,
    )
    machine.wait_restarted(first)
    # It ran before it failed, so nothing is waited for; the failure is remembered until the next one runs.
    assert machine.vm()["status"].get("startFailure", {}).get("consecutiveFailCount", 0) <= 1


def test_killing_the_launcher_fails_the_instance_at_once(new_machine: Create) -> None:
    machine = new_machine("orphan")
    machine.wait_running()
    first = machine.uid()
    assert _seconds_to_failure(machine, machine.launcher()) < _DETECTION_SECONDS
    machine.wait_restarted(first)


def _seconds_to_failure(machine: Machine, pid: int) -> float:
    """The seconds until the end of a process is told, as a machine counts them that is not busy otherwise."""
    uid = machine.uid()
    with starvation_measured() as starvation:
        begun = time.monotonic()
        kill(pid)
        # The next instance has the same name; that it exists means that the failure of this one was seen.
        wait_for("the failure is seen", lambda: machine.phase() == "Failed" or machine.uid() != uid, 20)
        return (time.monotonic() - begun) / starvation.factor


def test_a_machine_that_keeps_failing_to_start_waits_ever_longer(
    cluster: Cluster, new_machine: Create
) -> None:
    machine = new_machine("looping")
    wait_for("an instance is starting", lambda: machine.phase() in ("Scheduling", "Scheduled"), 60)
    fail_before_it_runs(cluster, machine)
    wait_for("it waits", lambda: machine.status() == "CrashLoopBackOff", 30)
    failure = machine.vm()["status"]["startFailure"]
    assert failure["consecutiveFailCount"] >= 1
    assert failure["retryAfterTimestamp"]
    # What waits starts in the end.
    machine.wait_running(90)


def fail_before_it_runs(cluster: Cluster, machine: Machine) -> None:
    """Delete the launcher pod while the guest is not yet running: this start has failed."""
    uid = machine.uid()
    for pod in machine.pods():
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
        cluster.request("DELETE", path)
    wait_for("the start has failed", lambda: machine.phase() == "Failed" or machine.uid() != uid, 20)
