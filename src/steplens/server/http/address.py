"""The address that a server listens on, and what it is called in a link. Nothing of the web is imported for it."""

from __future__ import annotations

import ipaddress
import socket

from steplens.common.errors import SteplensError


def open_listening_socket(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        SteplensError: the address is not one of this machine, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends answers at once, instead of waiting for the browser's acknowledgement, only on sockets that name the protocol
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        raise SteplensError(f"cannot listen on {host} port {port} ({error}); leave out --port to take a free one") from error
    return bound


def is_local(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def in_link(host: str) -> str:
    """What an address is called in a link; the one that stands for all of the machine's is the machine itself."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"
    return f"[{host}]" if ":" in host else host
