"""Processes that train one model together: finding each other, agreeing on what to do, leaving together.

Process 0 leads: it alone holds the artifact's lease and writes. What it decides reaches the others through the
key-value store of JAX's coordination service, which needs no device.
"""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from marin_core.errors import MarinError

# Pods of a gang start together, but images are pulled at different speeds.
JOIN_SECONDS = 600.0
# How soon the others know of a process that went without a word, its machine included.
HEARTBEAT_SECONDS = 60
# A process that leaves waits so long for the others; the leader may be hashing a large checkpoint.
LEAVE_SECONDS = 600
# How long the others wait for a leader that may be waiting for a lease, or committing. It can only end by its word or
# with its process, which ends theirs.
_HEAR_SECONDS = 24 * 3600


# What JAX and Gloo say, in one of their own exceptions, when another process has gone.
_SIGNS_OF_LOSS = ("Gloo", "heartbeat timeout", "coordination service", "Connection closed by peer")


class PeersMissing(MarinError):
    """The processes of a gang did not find each other in time."""


class PeerLost(MarinError):
    """Another process of the gang went in the middle of the work. This one cannot go on, nor wait for anybody."""


class Gang:
    """One process of a gang that has joined it. At most one in the life of a process."""

    def __init__(self, index: int, processes: int):
        self.index, self.processes = index, processes
        self._told: set[str] = set()

    @property
    def leads(self) -> bool:
        return self.index == 0

    @classmethod
    def join(
        cls,
        index: int,
        processes: int,
        coordinator: str,
        give_up: Callable[[PeersMissing], None],
        seconds: float = JOIN_SECONDS,
    ) -> Self:
        """Wait for the other processes, before anything touches a device. `coordinator` is where process 0 listens,
        HOST:PORT.

        JAX aborts the process when its own time is over, without an exception. So a thread calls `give_up` before that,
        after `seconds`, and it must end the process.
        """
        import jax

        joined = threading.Event()

        def watch() -> None:
            if not joined.wait(seconds):
                give_up(_missing(index, processes, coordinator, seconds))

        threading.Thread(target=watch, name="joining", daemon=True).start()
        jax.distributed.initialize(
            coordinator,
            processes,
            index,
            # Everything is said already, and detection may take the pod for one of a cluster of its own idea.
            cluster_detection_method="deactivate",
            initialization_timeout=int(seconds) + 60,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=LEAVE_SECONDS,
        )
        joined.set()
        return cls(index, processes)

    def tell(self, key: str, value: Any) -> None:
        """Tell the others something, once per key; JSON."""
        _coordination().key_value_set(f"marin/{key}", json.dumps(value))
        self._told.add(key)

    def has_told(self, key: str) -> bool:
        return key in self._told

    def hear(self, key: str) -> Any:
        """Wait for what the leader tells under a key."""
        return json.loads(_coordination().blocking_key_value_get(f"marin/{key}", _HEAR_SECONDS * 1000))

    def stops_at(self, step: int) -> bool:
        """Whether all processes stop after this step, since SIGTERM reached one of them. Each must ask at each step."""
        from jax.experimental.multihost_utils import reached_preemption_sync_point

        return reached_preemption_sync_point(step)

    def leave(self) -> None:
        """Wait until all are done, so that nobody takes another's end for a failure."""
        import jax

        jax.distributed.shutdown()

    def lost_peer(self, error: BaseException) -> PeerLost | None:
        """The error in words, if it came of another process that has gone."""
        cause: BaseException | None = error
        while cause is not None:
            said = str(cause)
            if any(sign in said for sign in _SIGNS_OF_LOSS):
                return PeerLost(
                    f"process {self.index} of {self.processes} lost another, whose pod's log says why: "
                    f"{said.splitlines()[0][:300]}"
                )
            cause = cause.__cause__ or cause.__context__
        return None


def _coordination() -> Any:
    # Its key-value store has no public name yet; Orbax uses it by this one as well.
    from jax._src import distributed

    return distributed.global_state.client


def _missing(index: int, processes: int, coordinator: str, seconds: float) -> PeersMissing:
    late = f"not all {processes} processes came within {seconds:.0f} s; see which pods of the job do not run, and why"
    if index == 0:
        return PeersMissing(f"this is process 0, at {coordinator}, and {late}")
    host, _, port = coordinator.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        return PeersMissing(
            f"process {index} did not reach the coordinator {coordinator} within {seconds:.0f} s "
            f"({error.strerror or error}); see whether the pod of process 0 runs, and whether its name resolves"
        )
    return PeersMissing(f"the coordinator {coordinator} answers process {index}, but {late}")
