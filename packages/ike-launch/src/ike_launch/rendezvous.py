"""Where the ranks of one host meet: a store that the agent hosts, at the port that was asked for."""

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # documented, not re-exported
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo


class OneHost(RendezvousHandler):
    """torch's c10d rendezvous chooses MASTER_PORT itself, whatever its endpoint; and here is nobody to wait for."""

    def __init__(self, host: str, port: int, run_id: str) -> None:
        """`port` 0: a free one, chosen by the system when the store binds it. RuntimeError where it is taken."""
        self._run_id = run_id
        self._host = host
        self._store = TCPStore(host, port, is_master=True, wait_for_workers=False)

    def next_rendezvous(self) -> RendezvousInfo:
        """This agent is the first of one, and its store is the ranks'."""
        meeting_point = RendezvousStoreInfo(self._host, self._store.port)
        return RendezvousInfo(
            PrefixStore(self._run_id, self._store), rank=0, world_size=1, bootstrap_store_info=meeting_point
        )

    @property
    def use_agent_store(self) -> bool:
        """The ranks are clients of it: none hosts one at MASTER_PORT."""
        return True

    def get_backend(self) -> str:
        return "one-host"

    def get_run_id(self) -> str:
        return self._run_id

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nobody else would join."""

    def num_nodes_waiting(self) -> int:
        return 0

    def shutdown(self) -> bool:
        return True
