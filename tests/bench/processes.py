"""The processes of the benchmark: started on a core of their own, asked for CPU time and memory, ended."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds until a process must listen
PAGE = os.sysconf("SC_PAGE_SIZE")
# One core for the process under test, the other for the load; without a second one nobody is pinned.
_cores = sorted(os.sched_getaffinity(0))
TESTED, LOAD = ({_cores[0]}, {_cores[-1]}) if len(_cores) > 1 else (None, None)


class Unusable(Exception):
    """The benchmark cannot run here; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    pid: int
    port: int

    def cpu(self) -> float:
        """Seconds of CPU, user and system, of all its threads: the kernel's clock of a process, for /proc/PID/stat counts hundredths."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident(self) -> int:
        """Bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE


def _place(core: set[int] | None) -> None:
    """This process on its core, and before other programs where that is allowed: their turns would be counted as delays."""
    if core:
        os.sched_setaffinity(0, core)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def busy() -> float:
    """Seconds in which the core of the process under test did anything at all, since the machine started."""
    name = f"cpu{min(TESTED)} " if TESTED else "cpu "
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(name))
    user, nice, system, _idle, _wait, *rest = (int(field) for field in line.split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    name: str, command: Sequence[str], port: int, core: set[int] | None, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """The process once it listens. What it prints goes into a file, which is shown if it does not start."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            preexec_fn=lambda: _place(core),
        )
    try:
        _wait_for(child, name, port, log)
        yield Process(name, child.pid, port)
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_for(child: subprocess.Popen[bytes], name: str, port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while child.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise Unusable(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")



def python(module: str) -> list[str]:
    """A module run with what requirements/run.txt brings: sniffio comes with the tests' packages, and anyio would ask it eight times a
    request."""
    start = "import runpy, sys; sys.modules['sniffio'] = None; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", start, module]


GATEWAY = """\
providers:
  claude: {{ type: anthropic, base_url: "http://127.0.0.1:{port}", api_key: bench }}
  openai: {{ type: openai, base_url: "http://127.0.0.1:{port}/v1", api_key: bench }}
"""

NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log {folder}/access.log;  # a line for each request, as its package has it, and as the gateway writes one
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000;
    upstream provider {{ server 127.0.0.1:{upstream}; keepalive 100; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; proxy_read_timeout 660s;
        }}
    }}
}}
"""


def nginx() -> str:
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unusable("The benchmark compares with nginx, which is not installed: apt-get install nginx")
    return found


def nginx_version() -> str:
    said = subprocess.run([nginx(), "-v"], capture_output=True, text=True, check=True).stderr
    return re.sub(r".*nginx/", "", said).split()[0]


@contextmanager
def everything() -> Iterator[tuple[Process, dict[str, Process]]]:
    """The upstream, and the processes under test by name."""
    program = nginx()
    _place(LOAD)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))

        def start(name: str, command: Sequence[str], port: int, core: set[int] | None, **environment: str) -> Process:
            return stack.enter_context(running(name, command, port, core, folder, environment))

        port = free_port()
        upstream = start("upstream", [sys.executable, "-m", "tests.bench.upstream", str(port)], port, LOAD)
        (folder / "gateway.yaml").write_text(GATEWAY.format(port=upstream.port))
        port = free_port()
        command = [*python("gateway"), "serve", "--config", str(folder / "gateway.yaml"), "--port", str(port)]
        gateway = start("gateway", command, port, TESTED)
        port = free_port()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, upstream=upstream.port))
        proxy = start("nginx", [program, "-p", str(folder), "-c", str(folder / "nginx.conf")], port, TESTED)
        port = free_port()
        command = [*python("uvicorn"), "tests.bench.naive:app", "--port", str(port)]
        naive = start("naive", command, port, TESTED, UPSTREAM=f"http://127.0.0.1:{upstream.port}")
        yield upstream, {"gateway": gateway, "nginx": proxy, "naive": naive}
