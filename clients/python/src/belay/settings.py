"""The settings of a connection: where the server is, and how the client shows who it is."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from belay.errors import UsageError

#: The revision of the contract that the stubs were generated from; sent with each request as `belay-contract`.
CONTRACT_REVISION = 1

_NAMESPACE = re.compile(r"-|[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class TLS:
    """The certificates of a connection over TLS. Each is the path of a PEM file, or its bytes.

    Without `ca` the server's certificate is checked against the authorities that gRPC brings along. `cert` and `key` are the client's own, for servers
    that ask for one (mTLS). `server_name` is the name in the server's certificate, where it is not the host of the address.
    """

    ca: str | os.PathLike[str] | bytes | None = None
    cert: str | os.PathLike[str] | bytes | None = None
    key: str | os.PathLike[str] | bytes | None = field(default=None, repr=False)
    server_name: str | None = None

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Returns the authorities, the key and the certificate as PEM bytes, as gRPC takes them."""
        if (self.cert is None) != (self.key is None):
            missing = "key" if self.key is None else "cert"
            raise UsageError(f"`tls.{missing}` is missing: a client's certificate needs both `cert` and `key`.", field=f"tls.{missing}")
        return _pem(self.ca, "tls.ca"), _pem(self.key, "tls.key"), _pem(self.cert, "tls.cert")


def _pem(source: str | os.PathLike[str] | bytes | None, name: str) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise UsageError(f"`{name}` cannot be read: {error}.", field=name) from error


@dataclass(frozen=True)
class Address:
    """An address of a server as gRPC takes it."""

    #: The address as people write it: `unix:/path`, `http://host:port` or `https://host:port`.
    url: str
    #: The target of the channel.
    target: str
    #: Whether the connection is encrypted.
    is_encrypted: bool
    #: Whether no other machine can read the connection: a unix socket or the loopback interface.
    is_local: bool
    #: Whether it is a unix socket.
    is_unix: bool

    @staticmethod
    def parse(url: str, name: str) -> Address:
        """Reads an address as people write it; `name` is the argument that is named in the error."""
        expected = "write unix:/path/to/socket, http://host:port or https://host:port"
        if not isinstance(url, str):
            raise UsageError(f"`{name}` is not text: {expected}.", field=name)
        if url.startswith("unix:"):
            path = url.removeprefix("unix:")
            path = path.removeprefix("//") if path.startswith("//") else path
            if not path.startswith("/"):
                raise UsageError(f"`{name}` is {url!r}: the path of a socket is absolute, unix:/path/to/socket.", field=name)
            return Address(f"unix:{path}", f"unix:{path}", False, True, True)
        match = re.fullmatch(r"(https?)://(\[[0-9a-fA-F:.%]+\]|[^/:\[\]@\s]+):(\d{1,5})/?", url)
        if match is None or not 0 < int(match[3]) < 65536:
            raise UsageError(f"`{name}` is {url!r}: {expected}.", field=name)
        scheme, host, port = match.groups()
        return Address(f"{scheme}://{host}:{port}", f"{host}:{port}", scheme == "https", _is_loopback(host.strip("[]")), False)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Settings:
    """All settings of a client. Times are in seconds."""

    server: Address
    gate: Address
    namespace: str
    token: str | None = field(default=None, repr=False)
    tls: TLS | None = None
    timeout: float = 30.0
    retry_for: float = 10.0
    reconnect_for: float = 60.0
    heartbeat: float = 10.0

    @staticmethod
    def resolve(
        url: str | None,
        token: str | None,
        tls: TLS | bool | None,
        namespace: str | None,
        gate: str | None,
        timeout: float,
        retry_for: float,
        reconnect_for: float,
        heartbeat: float,
    ) -> Settings:
        """Returns the settings from arguments, then the `BELAY_*` variables, then the state directory of this user."""
        server = Address.parse(url, "url") if url is not None else _server_of_environment()
        beside = Address.parse(gate, "gate") if gate is not None else None
        if beside is None:
            # The variable belongs to the server of the environment, not to one that was named.
            variable = os.environ.get("BELAY_GATE") if url is None else None
            beside = Address.parse(variable, "BELAY_GATE") if variable else server
        chosen_token = token if token is not None else (os.environ.get("BELAY_TOKEN") or None)
        if chosen_token is not None and not re.fullmatch(r"[\x21-\x7e]+", chosen_token):
            raise UsageError("`token` is empty or has characters that no token has.", field="token")
        chosen_namespace = namespace if namespace is not None else (os.environ.get("BELAY_NAMESPACE") or "default")
        if not _NAMESPACE.fullmatch(chosen_namespace):
            message = f"`namespace` is {chosen_namespace!r}: use 1 to 64 lower-case letters, digits and `-`, beginning with a letter or a digit."
            raise UsageError(message, field="namespace")
        for name, seconds in (("timeout", timeout), ("retry_for", retry_for), ("reconnect_for", reconnect_for), ("heartbeat", heartbeat)):
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
                raise UsageError(f"`{name}` is {seconds!r}: it is a number of seconds, 0 or more.", field=name)
        if not timeout > 0:
            raise UsageError("`timeout` is 0: it is a number of seconds, more than 0.", field="timeout")
        if not 0.1 <= heartbeat <= 600:
            raise UsageError(f"`heartbeat` is {heartbeat!r}: it is between 0.1 and 600 seconds.", field="heartbeat")
        settings = Settings(
            server, beside, chosen_namespace, chosen_token, _tls(tls, server), float(timeout), float(retry_for), float(reconnect_for), float(heartbeat)
        )
        for address in (server, beside):
            settings._check(address, plain=tls is False)
        return settings

    def _check(self, address: Address, plain: bool) -> None:
        if self.tls is not None and not address.is_encrypted:
            raise UsageError(f"`tls` is given, and {address.url} is not encrypted: write https://host:port.", field="tls")
        if plain and address.is_encrypted:
            raise UsageError(f"`tls` is False, and {address.url} is encrypted: write http://host:port.", field="tls")
        if self.token is not None and not address.is_encrypted and not address.is_local and not plain:
            message = (
                f"The token would be sent to {address.url} without encryption, and everybody on the way could read it: "
                "use https://, or pass tls=False to send it all the same."
            )
            raise UsageError(message, field="url")

    def address_of(self, service: str) -> Address:
        """Returns the address at which a service of the contract is reached, by the service's name."""
        return self.gate if service in ("ApprovalService", "PolicyService") else self.server


def _tls(tls: TLS | bool | None, server: Address) -> TLS | None:
    if isinstance(tls, TLS):
        return tls
    if tls is not None and not isinstance(tls, bool):
        raise UsageError("`tls` is a belay.TLS, True, False or None.", field="tls")
    if tls is False or (tls is None and not server.is_encrypted):
        return None
    ca, cert, key = (os.environ.get(f"BELAY_TLS_{part}") or None for part in ("CA", "CERT", "KEY"))
    return TLS(ca, cert, key) if ca or cert or key or tls else None


def _server_of_environment() -> Address:
    if server := os.environ.get("BELAY_SERVER"):
        return Address.parse(server, "BELAY_SERVER")
    if state := os.environ.get("BELAY_STATE_DIR"):
        folder = Path(state)
    elif state := os.environ.get("XDG_STATE_HOME"):
        folder = Path(state) / "belay"
    else:
        folder = Path.home() / ".local" / "state" / "belay"
    return Address.parse(f"unix:{(folder / 'executor.sock').absolute()}", "BELAY_STATE_DIR")
