"""Which sessions of this host a starting manager ends."""

import subprocess
import sys

import msgspec

from pitboss.engines.host_clock import boot_id
from pitboss.manager import host
from pitboss.model.session import Session, SessionInfo

OURS = host.identity((), 15_000_000)


def _session(info: SessionInfo, **changes: object) -> Session:
    return Session(number=1, info=msgspec.structs.replace(info, **changes), opened_at=0, expires_at=15_000_000)


def test_a_live_manager_is_never_taken_for_dead_however_the_clocks_differ() -> None:
    """Its session is older by the store's clock than its process by this host, which stood still in between."""
    assert not host.is_dead(_session(OURS))
    assert not host.is_dead(_session(OURS, boot_id=boot_id())), "a version before stored the boot alone"
    assert not host.is_dead(_session(OURS, host="elsewhere", boot_id="other"))


def test_a_dead_manager_is_noticed_even_if_another_process_has_its_pid() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert host.is_dead(_session(OURS, pid=gone.pid))
    assert host.is_dead(_session(OURS, boot_id="another boot"))
    assert host.is_dead(_session(OURS, boot_id=f"{OURS.boot_id}0")), "started at another moment"
