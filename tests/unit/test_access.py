"""Who may call: what the headers alone decide, and that nothing of the body is read before."""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from gateway import access
from gateway.access import NO_KEY, Access, Trace, caller, request_id
from gateway.routing import Caller

pytestmark = pytest.mark.anyio
KEY, OPERATORS = "gw-web-key", "gw-operators-key"


def known(name: str, key: str, **fields: Any) -> Caller:
    return Caller(name, hashlib.sha256(key.encode()).digest(), **fields)


CALLERS = (known("web", KEY), known("operator", OPERATORS, live=True))
JSON = {"content-type": "application/json"}


NONE: Mapping[str, str] = MappingProxyType({})


class Answered:
    """What came back, and what the application behind the rules saw."""

    status = 0
    headers: dict[str, str]
    body = b""
    reached = False
    caller: Caller | None = None

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


async def ask(
    rules: dict[str, Any], method: str = "POST", path: str = "/chat", headers: Mapping[str, str] = NONE, scheme: str = "http"
) -> Answered:
    """One request through the rules. Reading its body before the application is reached fails."""
    found = Answered()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        found.reached, found.caller = True, caller(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            found.body += message.get("body", b"")

    given = dict(headers)
    given.setdefault("host", "127.0.0.1:8000")
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()]
    scope = {"type": "http", "method": method, "path": path, "scheme": scheme, "headers": raw, "query_string": b""}
    await Access(application, **{"origins": (), **rules})(scope, receive, send)
    return found


NOBODY: dict[str, Any] = {}
KEYS: dict[str, Any] = {"callers": CALLERS}
PUBLIC: dict[str, Any] = {"callers": CALLERS, "loopback": False}
OPEN: dict[str, Any] = {"loopback": False}

# keys


@pytest.mark.parametrize("rules", [KEYS, PUBLIC])
@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer   {KEY} "},
        {"x-api-key": KEY},
        {"x-api-key": KEY, "authorization": "Bearer wrong"},
        {"x-api-key": "wrong", "authorization": f"Bearer {KEY}"},
        {"x-api-key": KEY, "authorization": "Basic d2ViOng="},
    ],
)
async def test_a_key_is_taken_from_either_header(rules: dict[str, Any], headers: dict[str, str]) -> None:
    answered = await ask(rules, headers=headers)
    assert (answered.status, answered.caller) == (200, CALLERS[0])


@pytest.mark.parametrize("rules", [KEYS, PUBLIC])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"authorization": f"Bearer {KEY.upper()}"},
        {"authorization": f"Bearer {hashlib.sha256(KEY.encode()).hexdigest()}"},
        {"x-api-key": ""},
        {"x-api-key": "schlüssel"},
        {"x-api-key": "x" * 60_000},
        {"cookie": f"key={KEY}"},
    ],
)
async def test_without_a_known_key_it_is_401_before_the_body_is_read(rules: dict[str, Any], headers: dict[str, str]) -> None:
    answered = await ask(rules, headers=headers)
    assert not answered.reached
    assert (answered.status, answered.headers["www-authenticate"]) == (401, "Bearer")
    assert (answered.error["type"], answered.error["code"], answered.error["message"]) == ("authentication_error", "unauthorized", NO_KEY)
    assert answered.error["retryable"] is False


async def test_the_refusal_repeats_nothing_of_a_wrong_key() -> None:
    answered = await ask(KEYS, headers={"x-api-key": "gw-secret-canary", "authorization": "Bearer gw-secret-canary"})
    assert b"canary" not in answered.body + repr(answered.headers).encode()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/chat", "/v1/models", "/live", "/metrics", "/nowhere", "//", "/healthz/", "/readyz/x", "/HEALTHZ"])
async def test_every_other_path_wants_a_key_whether_there_is_something_or_not(method: str, path: str) -> None:
    assert (await ask(KEYS, method, path)).status == 401


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
async def test_health_and_the_page_want_no_key(path: str) -> None:
    for headers in ({}, {"x-api-key": "wrong"}):
        assert (await ask(PUBLIC, "GET", path, headers)).status == 200


async def test_without_callers_no_key_is_asked_for_and_one_that_is_sent_means_nothing() -> None:
    for rules in (NOBODY, OPEN):
        answered = await ask(rules, headers={"x-api-key": KEY})
        assert (answered.status, answered.caller) == (200, None)


async def test_a_caller_shows_no_hash_when_printed() -> None:
    assert "digest" not in repr(CALLERS[0])


# browsers


async def test_a_preflight_needs_no_key() -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,x-api-key"}
    rules = {**PUBLIC, "origins": ("https://app.example",)}
    answered = await ask(rules, "OPTIONS", headers={"origin": "https://app.example", **asked})
    assert (answered.status, answered.reached) == (200, False)
    assert answered.headers["access-control-allow-origin"] == "https://app.example"
    assert answered.headers["access-control-allow-headers"] == "authorization,x-api-key"
    assert "POST" in answered.headers["access-control-allow-methods"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [(JSON, 401), ({**JSON, "x-api-key": KEY}, 200), ({"content-type": "text/plain", "x-api-key": KEY}, 403)],
)
async def test_an_allowed_page_may_read_every_answer(headers: dict[str, str], status: int) -> None:
    answered = await ask({**PUBLIC, "origins": ("https://app.example",)}, headers={"origin": "https://app.example", **headers})
    assert (answered.status, answered.headers["access-control-allow-origin"]) == (status, "https://app.example")
    assert "origin" in answered.headers["vary"].lower()


LOOPBACK_PAGES = ["http://localhost:3000", "https://localhost", "http://127.0.0.1", "http://[::1]:5173"]


@pytest.mark.parametrize("origin", LOOPBACK_PAGES)
async def test_pages_of_this_machine_may_call_on_a_loopback_bind_only(origin: str) -> None:
    headers = {"origin": origin, "x-api-key": KEY, **JSON}
    for rules in (NOBODY, KEYS):
        answered = await ask(rules, headers=headers)
        assert (answered.status, answered.headers["access-control-allow-origin"]) == (200, origin)
    for rules in (OPEN, PUBLIC):
        answered = await ask(rules, headers={**headers, "host": "gateway.example"})
        assert (answered.status, answered.error["code"]) == (403, "forbidden_origin")
        assert "access-control-allow-origin" not in answered.headers


@pytest.mark.parametrize("rules", [OPEN, PUBLIC, {**PUBLIC, "origins": ("https://other.example",)}])
@pytest.mark.parametrize(
    ("origin", "host", "scheme"),
    [
        ("http://gateway.example", "gateway.example", "http"),
        ("http://gateway.example:8000", "gateway.example:8000", "http"),
        ("http://gateway.example", "gateway.example:80", "http"),
        ("https://gateway.example", "Gateway.Example:443", "https"),
        ("http://[2001:db8::1]:8000", "[2001:db8::1]:8000", "http"),
    ],
)
async def test_the_servers_own_pages_may_call(rules: dict[str, Any], origin: str, host: str, scheme: str) -> None:
    answered = await ask(rules, headers={"origin": origin, "host": host, "x-api-key": KEY, **JSON}, scheme=scheme)
    assert answered.status == 200


async def test_behind_a_proxy_that_speaks_tls_the_own_pages_are_https() -> None:
    headers = {"origin": "https://gateway.example", "host": "gateway.example", "x-api-key": KEY, **JSON}
    assert (await ask(PUBLIC, headers=headers)).status == 403
    assert (await ask(PUBLIC, headers={**headers, "x-forwarded-proto": "https"})).status == 200


@pytest.mark.parametrize("rules", [NOBODY, KEYS, OPEN, PUBLIC])
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "http://gateway.example.evil.example:8000",
        "http://evil.example:8000",
        "http://gateway.example",
        "http://gateway.example:8001",
        "https://gateway.example:8000",
        "http://user@gateway.example:8000",
        "ftp://gateway.example:8000",
        "http://gateway.example:port",
        "file://",
        "http://[::1",
    ],
)
async def test_every_other_origin_is_403_with_or_without_a_key(rules: dict[str, Any], origin: str) -> None:
    host = "gateway.example:8000" if rules.get("loopback") is False else "127.0.0.1:8000"
    answered = await ask(rules, headers={"origin": origin, "host": host, "x-api-key": KEY, **JSON})
    assert not answered.reached
    assert (answered.status, answered.error["code"], answered.error["type"]) == (403, "forbidden_origin", "permission_error")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "", "[::1", "192.168.1.5"),
        *("evil@localhost", "localhost/evil", "localhost#evil", "localhost?evil", "localhost\\evil", "[::1]evil", "localhost:80:80"),
        *("localhost:port", "localhost:-1", "local host", "::1", "127.1", "0x7f.1", "[::ffff:10.0.0.1]", "localhost,evil.example"),
    ],
)
async def test_on_a_loopback_bind_the_host_is_this_machines_whoever_calls(host: str) -> None:
    for rules in (NOBODY, KEYS):
        answered = await ask(rules, headers={"host": host, "x-api-key": KEY})
        assert (answered.status, answered.error["code"]) == (403, "forbidden_origin")
    for rules in (OPEN, PUBLIC):
        assert (await ask(rules, headers={"host": host, "x-api-key": KEY})).status == 200


@pytest.mark.parametrize("host", ["127.0.0.9", "127.0.0.9:8000", "[::1]:8000", "localhost:", "LocalHost"])
async def test_any_address_of_this_machine_alone_is_its_own(host: str) -> None:
    origin = f"http://{host.rstrip(':')}"
    assert (await ask(NOBODY, headers={"host": host})).status == 200
    answered = await ask(NOBODY, headers={"host": host, "origin": origin, **JSON})
    assert answered.status == 200


async def test_own_origin_is_compared_with_the_host_as_a_whole() -> None:
    for host in ("evil.example@gateway.example", "evil.example/gateway.example", "evil.example#gateway.example"):
        assert (await ask(OPEN, headers={"origin": "http://evil.example", "host": host, **JSON})).status == 403


# traces


@pytest.mark.parametrize(
    ("rules", "headers", "said"),
    [
        (NOBODY, {"host": "evil\n.example"}, "refused with 403: The Host header must be"),
        (NOBODY, {"origin": "http://evil.example"}, "This Origin may not use the gateway"),
        (NOBODY, {"origin": "http://localhost", "content-type": "text/plain"}, "must send its chat with the content type"),
        (KEYS, {"host": "localhost:8000"}, "refused with 401: No key that is known here was sent"),
    ],
)
async def test_refusal_leaves_one_line(
    rules: dict[str, Any], headers: dict[str, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "trace", Trace())
    caplog.set_level("INFO", "gateway")
    await ask(rules, headers=headers)
    (line,) = caplog.messages
    assert said in line
    name = "origin" if "origin" in headers else "host"
    assert line.endswith(f" {name.title()}: {headers[name]!r}")
    assert "\n" not in line


async def test_long_header_is_cut_in_its_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "trace", Trace())
    caplog.set_level("INFO", "gateway")
    await ask(NOBODY, headers={"origin": "x" * 60_000})
    assert len(caplog.messages[0]) < 500


async def test_many_refusals_are_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(access, "trace", Trace(lambda: now[0]))
    caplog.set_level("INFO", "gateway")
    for _ in range(50):
        await ask(KEYS)
    assert len(caplog.messages) == 5
    now[0] += 1
    await ask(KEYS)
    assert caplog.messages[5].endswith(" (45 more were refused before this)")
    await ask(KEYS)
    assert "more" not in caplog.messages[6]


@pytest.mark.parametrize("rules", [NOBODY, KEYS, PUBLIC])
@pytest.mark.parametrize("sign", [{"origin": "http://127.0.0.1:8000"}, {"sec-fetch-site": "same-origin"}])
async def test_what_a_page_sends_is_json(rules: dict[str, Any], sign: dict[str, str]) -> None:
    for kind, status in (("application/json; charset=utf-8", 200), ("text/plain", 403), ("", 403)):
        answered = await ask(rules, headers={**sign, "x-api-key": KEY, "content-type": kind})
        assert answered.status == status
    assert (await ask(rules, headers={"x-api-key": KEY, "content-type": "text/plain"})).status == 200  # curl -d


# /live


@pytest.mark.parametrize(
    ("rules", "key", "status"),
    [
        (NOBODY, "", 200),
        (OPEN, "", 403),
        (OPEN, OPERATORS, 403),
        (KEYS, "", 401),
        (KEYS, KEY, 403),
        (KEYS, OPERATORS, 200),
        (PUBLIC, "", 401),
        (PUBLIC, KEY, 403),
        (PUBLIC, OPERATORS, 200),
    ],
)
async def test_live_is_for_operators_or_for_a_machine_without_callers(rules: dict[str, Any], key: str, status: int) -> None:
    for path in ("/live", "/live/"):
        answered = await ask(rules, "GET", path, {"x-api-key": key})
        assert (answered.status, answered.reached) == (status, status == 200)


async def test_what_is_no_request_passes() -> None:
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    await Access(application, (), CALLERS)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]  # never called
    assert seen == ["lifespan"]


@pytest.mark.parametrize(("given", "kept"), [("abc-1_Z", True), ("a b", False), ("x" * 65, False), ("", False)])
def test_a_harmless_request_id_is_kept(given: str, kept: bool) -> None:
    scope: dict[str, Any] = {"headers": [(b"x-request-id", given.encode())]}
    assert (request_id(scope) == given) is kept
