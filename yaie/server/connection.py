"""How the server receives bytes."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

RECEIVED_BYTES = 16 * 1024  # more than most requests have


class Connection(AutoHTTPProtocol, asyncio.BufferedProtocol):
    """uvicorn's connection, with one small receive buffer that is used again.

    Otherwise asyncio allocates 256 KiB for each chunk and gives back all but the few bytes that it
    needed, which fragments the heap: it grew by about 80 bytes per request.
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
        """Log nothing when a client asks for a websocket; uvicorn would log what to install."""
