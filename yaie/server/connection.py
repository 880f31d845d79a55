"""How the server receives."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

RECEIVED_BYTES = 16 * 1024  # of a connection at once: more than most requests have


class Connection(AutoHTTPProtocol, asyncio.BufferedProtocol):
    """uvicorn's, which receives into a small buffer of its own.

    For each piece that comes, asyncio would otherwise take 256 KiB and give back all but the few
    bytes that it needed. Several connections' pieces lie in one another's way, and the heap frays:
    it grew by some 80 bytes a request, though nothing was kept.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._received = bytearray(RECEIVED_BYTES)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where asyncio may write."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was written there."""
        self.data_received(bytes(memoryview(self._received)[:nbytes]))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing of who asks for a websocket: uvicorn would log what to install for it."""
