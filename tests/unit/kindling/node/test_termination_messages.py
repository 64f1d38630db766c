"""What a container that failed leaves as its message when the end of its log is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindling.node.pods import identity
from kindling.node.pods.pleg import termination_message
from kindling.node.runtime.interface import Container, ContainerState


def message_of(tmp_path: Path, *lines: str, exit_code: int = 1, policy: str = "FallbackToLogsOnError") -> str:
    log = tmp_path / "0.log"
    written = "".join(f"2026-01-02T03:04:05.000000006Z stdout {line}\n" for line in lines)
    log.write_bytes(written.encode())
    return termination_message(ended({identity.ANNOTATION_TERMINATION_POLICY: policy}, exit_code, str(log)))


def ended(annotations: dict[str, str], exit_code: int = 0, log_path: str = "") -> Container:
    return Container(
        id="c",
        sandbox_id="s",
        name="main",
        attempt=0,
        state=ContainerState.EXITED,
        created_at=1,
        annotations=annotations,
        exit_code=exit_code,
        log_path=log_path,
    )


def test_the_last_four_kibibytes_of_a_termination_file_count(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.write_text("a" * 100 + "b" * 4096)
    assert termination_message(ended({identity.ANNOTATION_TERMINATION_FILE: str(file)})) == "b" * 4096


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        pytest.param(("F one", "F two"), "one\ntwo\n", id="whole lines keep their ends"),
        pytest.param(("P DONE",), "DONE", id="a last line without an end gets none"),
        pytest.param(("P long ", "F line", "F next"), "long line\nnext\n", id="a line in pieces is one"),
        pytest.param(("F ",), "\n", id="an empty line"),
        pytest.param(("F 10 %\r100 %", "F done"), "10 %\r100 %\ndone\n", id="a carriage return ends no line"),
        pytest.param((), "", id="nothing written"),
    ],
)
def test_the_message_is_what_the_container_wrote(
    tmp_path: Path, lines: tuple[str, ...], message: str
) -> None:
    assert message_of(tmp_path, *lines) == message


def test_only_the_last_eighty_lines_and_two_kibibytes_count(tmp_path: Path) -> None:
    assert message_of(tmp_path, *(f"F {n}" for n in range(200))) == "".join(f"{n}\n" for n in range(120, 200))
    assert message_of(tmp_path, "P " + "x" * 16384, "P " + "y" * 2000) == "x" * 48 + "y" * 2000


def test_a_log_longer_than_what_is_read_ends_the_same(tmp_path: Path) -> None:
    long = "a b c d " * 2048
    assert message_of(tmp_path, *(f"P {long}" for _ in range(9))) == long[-2048:]


@pytest.mark.parametrize(("exit_code", "policy"), [(0, "FallbackToLogsOnError"), (1, "File")])
def test_logs_are_no_message_of_success_or_where_nobody_asked(
    tmp_path: Path, exit_code: int, policy: str
) -> None:
    assert message_of(tmp_path, "F text", exit_code=exit_code, policy=policy) == ""
