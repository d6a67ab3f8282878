"""TLS: the certificate of a server, and the authorities and certificate of a client."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from ludus.errors import ConfigError

logger = logging.getLogger(__name__)


class ServerTls:
    """The certificate of a server, which can be renewed while the server runs.

    Args:
        certificate: a PEM file with the certificate and its chain.
        key: a PEM file with its key; None where the first file has it.
        client_authority: a PEM file with the authority of client certificates, which are then
            required; None asks for none.

    Raises:
        ConfigError: a file cannot be read or used.
    """

    def __init__(
        self, certificate: Path, key: Path | None = None, *, client_authority: Path | None = None
    ) -> None:
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load()
        if client_authority is not None:
            try:
                self.context.load_verify_locations(client_authority)
            except OSError as error:
                raise ConfigError(f"cannot use the authority {client_authority}: {error}") from None
            self.context.verify_mode = ssl.CERT_REQUIRED

    def read_again(self) -> None:
        """Read the certificate's files again, for new connections.

        If they cannot be used, the present certificate stays, and an error is logged.
        """
        try:
            # Into another context first: a key that does not fit would spoil the present one.
            ServerTls(self._certificate, self._key)
            self._load()
        except ConfigError as error:
            logger.error("the certificate stays as it is: %s", error)

    def _load(self) -> None:
        try:
            self.context.load_cert_chain(self._certificate, self._key)
        except OSError as error:  # ssl.SSLError too
            raise ConfigError(
                f"cannot use the certificate {self._certificate} with the key "
                f"{self._key or self._certificate}: {error}"
            ) from None


def client_context(authority: str = "", certificate: str = "") -> ssl.SSLContext | None:
    """Return the TLS context of a client; None, which means the default, without arguments.

    Args:
        authority: a PEM file with the authorities to trust, instead of the system's.
        certificate: a PEM file with the client's own certificate and key.

    Raises:
        ConfigError: a file cannot be read or used.
    """
    if not authority and not certificate:
        return None
    try:
        context = ssl.create_default_context(cafile=authority or None)
        if certificate:
            context.load_cert_chain(certificate)
    except OSError as error:
        raise ConfigError(
            f"cannot use the authority {authority!r} or the certificate {certificate!r}: {error}"
        ) from None
    return context
