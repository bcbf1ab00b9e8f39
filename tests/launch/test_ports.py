"""Where the ranks meet (B105)."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.launch.conftest import Launch, Start

from ike_core.errors import LaunchError
from ike_launch.ports import check_port


def test_a_taken_port_is_refused_with_its_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"127\.0\.0\.1:{port}: it is in use"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


@pytest.mark.usefixtures("needs_torch")
def test_two_launches_at_once_meet_at_different_ports(
    start: Start, script: Callable[[str], str], tmp_path: Path
) -> None:
    program = script(
        "import os, sys, time\n"
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "total = torch.ones(1); dist.all_reduce(total)\n"
        "print(int(total), os.environ['MASTER_PORT'])\n"
        "dist.destroy_process_group()\n"  # else torch 2.13 aborts now and then as it ends, under torchrun too
    )
    launches = [start("run", "--ranks", "2", "--", sys.executable, program) for _ in range(2)]
    ended = [each.wait() for each in launches]
    assert [each.code for each in ended] == [0, 0], ended
    ports = {line.split()[-1] for each in ended for line in each.stdout.splitlines()}
    assert len(ports) == 2
    assert all(line.split()[-2] == "2" for each in ended for line in each.stdout.splitlines())


@pytest.mark.usefixtures("needs_torch")
def test_a_third_at_a_taken_port_ends_at_once(launch: Launch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = launch("run", "--ranks", "2", "--port", str(port), "--", sys.executable, "-c", "print('started')")
    assert ended.code == 5
    assert f"127.0.0.1:{port}" in ended.last_line
    assert "started" not in ended.stdout
    assert ended.seconds < 10


@pytest.mark.usefixtures("needs_torch")
def test_the_ranks_meet_at_the_port_that_was_asked_for(launch: Launch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ended = launch(
        "run", "--port", str(port), "--", sys.executable, "-c", "import os; print(os.environ['MASTER_PORT'])"
    )
    assert ended.code == 0, ended.stderr
    assert ended.stdout == f"{port}\n"
