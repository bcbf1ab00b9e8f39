"""Whether the ranks can meet at a port."""

import errno
import socket

from ike_core.errors import LaunchError


def check_port(host: str, port: int) -> None:
    """LaunchError when `port` is taken; 0, a free one, is always right."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As torch's store does: a port whose last user has gone, but whose connections still linger, is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # on every interface, as the store will be
        except OSError as error:
            reason = "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
            raise LaunchError(
                f"the ranks can't meet at {host}:{port}: {reason}; name another launch.port, or 0 for a free one"
            ) from error
