"""One connection's TLS over memory: what the socket received in, what the peer meant out, and the other way round.

https://docs.python.org/3/library/ssl.html#memory-bio-support

By hand, because the loops' own keeps 256 KiB or more of every connection for itself, and a RST that comes while the reader is paused
makes it throw away what it has received.
"""

import ssl
from collections.abc import Iterator

RECORD = 16 * 1024  # bytes: no record holds more (RFC 8446, 5.1), and one is read at a time


class Tls:
    """One connection's, for its whole life. Making one raises `ValueError` for a host that no certificate can name."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ready = False  # the handshake is done
        self.ended = False  # the peer sent its close_notify

    def decrypt(self, received: bytes | memoryview) -> Iterator[bytes]:
        """What can be read now; at first, the handshake's next step. `ssl.SSLError` comes after what precedes the fault."""
        self._incoming.write(received)
        try:
            if not self.ready:
                self._object.do_handshake()
                self.ready = True
            while plain := self._object.read(RECORD):
                yield plain
            self.ended = True
        except ssl.SSLWantReadError:
            pass  # the rest is still on its way

    def encrypt(self, plain: bytes) -> None:
        self._object.write(plain)

    def outgoing(self) -> bytes:
        return self._outgoing.read()


def tls_failure(error: ssl.SSLError) -> str:
    """Why TLS failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was refused: {error.verify_message.rstrip('.')}"
    return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
