"""Loop devices and the files behind them."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.xfspool import are_detached, needs_pools, xfs_pool

from kubecore import loop_devices

pytestmark = needs_pools


def test_a_device_is_found_by_its_file_and_by_the_file_system_that_the_file_is_on(tmp_path: Path) -> None:
    with xfs_pool(tmp_path, 512 << 20) as pool:
        [under] = loop_devices.of_file((tmp_path / "pool.img").stat())
        assert loop_devices.of_file_system(under) == {}
        file = pool / "volumes" / "disk"
        file.parent.mkdir()
        file.touch()
        os.truncate(file, 1 << 20)
        with file.open("r+b") as opened:
            with loop_devices.attach(opened.fileno(), "/volumes/disk", sector=512, keep=True) as loop:
                number = int(loop.path.name.removeprefix("loop"))
            assert loop_devices.of_file(file.stat()) == [number]
            assert loop_devices.of_file_system(under) == {number: file.stat().st_ino}
            os.truncate(file, 2 << 20)
            found = loop_devices.find(opened.fileno(), "/volumes/disk")
            assert found is not None
            with found:
                found.refresh_size()
            assert Path(f"/sys/block/loop{number}/size").read_text() == f"{(2 << 20) // 512}\n"
        loop_devices.detach(number)
        assert are_detached(pool)
        assert loop_devices.of_file_system(under) == {}
        loop_devices.detach(number)  # what is detached already is no error
