"""`gateway simulate`: its options are the simulator's own words, the weakest of them, and what it says to people."""

import io
import json
import socket

import pytest

from gateway.__main__ import main
from gateway.commands import Paint
from gateway.commands.simulate import WISHES, screen, words
from gateway.settings import ConfigurationError
from gateway.simulator import Cut, Reset, Script, Send, Wait, answer


def said(script: Script) -> bytes:
    return b"".join(step.data for step in script.steps if isinstance(step, Send))


def asked(text: str = "hi", model: str = "m", wishes: str = "", stream: bool = True) -> Script:
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}
    return answer("/v1/messages", json.dumps(body).encode(), wishes)


def test_the_servers_wishes_hold_for_every_answer() -> None:
    assert asked(wishes="fault=status:529").status == 529
    assert isinstance(asked(wishes="fault=reset").steps[-1], Reset)
    assert b"thinking_delta" not in said(asked(wishes="thinking=0"))
    assert max(len(step.data) for step in asked(wishes="chunk=7").steps if isinstance(step, Send)) == 7


def test_a_request_wishes_more_strongly() -> None:
    assert isinstance(asked("[fault=cut]", wishes="fault=reset").steps[-1], Cut)
    assert isinstance(asked(model="m,fault=cut", wishes="fault=reset").steps[-1], Cut)
    assert said(asked("[fault=none]", wishes="fault=status:529")).endswith(b"message_stop\"}\n\n")
    assert not any(isinstance(step, Wait) for step in asked("speed=0", wishes="speed=5").steps)
    assert not any(isinstance(step, Wait) for step in asked(model="simulator-fast", wishes="speed=5").steps)


def test_without_wishes_nothing_has_changed() -> None:
    assert asked(wishes="") == answer("/v1/messages", b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}')


def test_options_become_words_and_what_is_not_given_is_none() -> None:
    assert words({"host": None, "port": "1", **dict.fromkeys(WISHES)}) == ""
    given = {"speed": "0.5", "tokens": "500", "fault": "status:503", "after": "3"}
    assert words(given) == "speed=0.5 tokens=500 after=3 fault=status:503"


@pytest.mark.parametrize("fault", ["status:400", "status:599", "html", "truncate_tool", "error", "cut", "reset", "hang"])
def test_every_fault_of_the_simulator_can_be_asked_for(fault: str) -> None:
    plain = asked()
    assert asked(wishes=words({"fault": fault})) != plain


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"speed": "fast"}, "--speed: expected a number such as 0.03 or 500"),
        ({"speed": "-1"}, "--speed: expected a number such as 0.03 or 500"),
        ({"chunk": "7."}, "--chunk: expected a number such as 0.03 or 500"),
        ({"tokens": "٣"}, "--tokens: expected a number such as 0.03 or 500"),
        ({"fault": "rest"}, "; did you mean reset?"),
        ({"fault": "status:200"}, "--fault: expected status:529 (400 to 599) or one of html, truncate_tool, error, cut, reset, hang"),
        ({"fault": "status:"}, "--fault: expected status:529 (400 to 599) or one of "),
        ({"fault": "cut speed=1"}, "--fault: expected "),
    ],
)
def test_a_word_that_the_simulator_would_not_understand_is_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        words(given)
    (line,) = raised.value.lines
    assert sentence in line


def test_mistakes_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--fault", "rest"], ["--port", "x"], ["--port", "65536"]):
        assert main(["simulate", *arguments]) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n")) == ("", 1)


def test_a_taken_port_is_one_sentence_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert main(["simulate", "--port", str(port)]) == 2
    remedy = f"stop the other program or choose another with --port {port + 1}."
    assert capsys.readouterr().err == f"Port {port} on 127.0.0.1 is taken: {remedy}\n"


def test_the_screen_has_both_base_urls_and_how_to_point_a_gateway_at_them() -> None:
    text = screen("127.0.0.1", 9000, "fault=reset", Paint(io.StringIO(), {}))
    assert "  Claude  http://127.0.0.1:9000\n" in text
    assert "  OpenAI  http://127.0.0.1:9000/v1\n" in text
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:9000 make run\n" in text
    assert "OPENAI_BASE_URL=http://127.0.0.1:9000/v1 make run\n" in text
    assert "fault=reset for every answer" in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("\n") <= 14
