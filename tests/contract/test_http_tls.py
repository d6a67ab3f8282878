"""Certificates and Unix sockets: both transports trust alike, and say what has expired."""

from __future__ import annotations

import asyncio
import datetime
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.envs.serving.server import EnvService
from ludus.errors import ConfigError, ServerUnreachable
from ludus.rewards import Sample
from ludus.rewards.serving.server import ScoreService
from ludus.wire.server import HttpServer
from ludus.wire.tls import ServerTls

ENV = "ludus/arithmetic-v0"
SAMPLE = Sample(response="a", gold="a")


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def issue(folder: Path, name: str, *, ends_in_days: int = 30) -> Path:
    """A certificate of our authority, with its key, in one file."""
    if not (folder / "ca.pem").exists():
        subject = ("-subj", "/CN=authority", "-days", "30", "-nodes")
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        files = ("-keyout", "ca.key", "-out", "ca.pem")
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", *files, *subject, *usage)
    files = ("-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(folder, "req", "-newkey", "rsa:2048", *files, "-subj", f"/CN={name}", "-nodes")
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    today = datetime.datetime.now(datetime.UTC)
    (folder / "index").write_text("")
    (folder / "serial").write_text("01")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=c\n[c]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n"
        "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
    )
    ends = today + datetime.timedelta(days=ends_in_days)
    begins = min(today, ends) - datetime.timedelta(days=1)
    openssl(
        folder,
        *("ca", "-batch", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key"),
        *("-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", "ext", "-notext"),
        *("-startdate", f"{begins:%Y%m%d%H%M%SZ}", "-enddate", f"{ends:%Y%m%d%H%M%SZ}"),
    )
    bundle = folder / f"{name}.pem"
    bundle.write_text((folder / f"{name}.crt").read_text() + (folder / f"{name}.key").read_text())
    return bundle


@asynccontextmanager
async def serving(**kwargs: Any) -> AsyncGenerator[HttpServer]:
    services = [EnvService([ENV]), ScoreService(["exact"])]
    async with HttpServer(services, **kwargs) as server:
        yield server


async def use(url: str, **kwargs: Any) -> None:
    """Play and score, over every transport."""
    for stream in (True, False):
        async with ludus.connect(url, stream=stream, timeout_s=20, **kwargs) as client:
            session = client.make_async(ENV)
            await session.reset(seed=1)
            await session.close()
            assert (await client.verifier("exact").score(SAMPLE)).ok
            assert (await asyncio.to_thread(client.score, "exact", SAMPLE)).ok


async def test_both_transports_trust_the_authority_and_show_the_certificate(tmp_path: Path) -> None:
    served, shown = issue(tmp_path, "server"), issue(tmp_path, "client")
    authority = tmp_path / "ca.pem"
    async with serving(tls=ServerTls(served)) as server:
        assert server.url.startswith("https://")
        await use(server.url, authority=str(authority))
        async with ludus.connect(server.url, timeout_s=0.5) as client:
            with pytest.raises(ServerUnreachable, match="certificate verify failed"):
                await client.make_async(ENV).reset(seed=1)
            with pytest.raises(ServerUnreachable, match="certificate verify failed"):
                await asyncio.to_thread(client.envs)
    async with serving(tls=ServerTls(served, client_authority=authority)) as server:
        await use(server.url, authority=str(authority), certificate=str(shown))
        async with ludus.connect(server.url, authority=str(authority), timeout_s=0.5) as client:
            with pytest.raises(ServerUnreachable):
                await client.make_async(ENV).reset(seed=1)


async def test_an_expired_certificate_is_said_and_a_new_one_is_read_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = issue(tmp_path, "server", ends_in_days=-1)
    authority = str(tmp_path / "ca.pem")
    async with serving(tls=ServerTls(served)) as server:
        async with ludus.connect(server.url, authority=authority, timeout_s=0.5) as client:
            with pytest.raises(ServerUnreachable, match="certificate has expired"):
                await client.make_async(ENV).reset(seed=1)
        issue(tmp_path, "server")
        server.reload()
        await use(server.url, authority=authority)
        served.write_text("no certificate")
        server.reload()
        assert "the certificate stays as it is" in caplog.text
        await use(server.url, authority=authority)


async def test_a_unix_socket_is_private_and_carries_everything(tmp_path: Path) -> None:
    path = tmp_path / "ludus.sock"
    async with serving(socket_path=str(path)) as server:
        assert path.stat().st_mode & 0o777 == 0o600
        await use(server.url)
        with pytest.raises(OSError, match="a server listens there"):
            await HttpServer([], socket_path=str(path)).start()
    async with serving(socket_path=str(path)) as server:  # one left behind is replaced
        await use(server.url)


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot use the certificate"):
        ServerTls(tmp_path / "x.pem")
    with pytest.raises(ConfigError, match="cannot use the authority"):
        ludus.connect("https://a", authority=str(tmp_path / "nothing.pem"))
