"""The command line: `gateway …`, or `python -m gateway …`."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from gateway import __version__

ABOUT = """\
Stands between a web frontend and any large language model, and streams
what the model says, in one event vocabulary, the moment it arrives.
"""

CONFIGURATION = """\
configuration, each before the next:
  command line · GATEWAY_* names · .env · /run/secrets · the YAML file · defaults

  GATEWAY_SERVER__PORT=9000        any key of the file, __ between the levels
  ANTHROPIC_API_KEY                make a provider where the file has none,
  OPENAI_API_KEY                   with …_BASE_URL and …_MODEL; without any
                                   key the built-in simulator answers
"""

EXAMPLES = """\
examples:
  gateway serve
  gateway serve --config gateway.yaml --port 9000
  gateway check --config gateway.yaml
  gateway key web
  gateway simulate --fault reset
  gateway schema config > gateway.schema.json
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the process's exit status: 2 for what the person can put right."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode still gets its line
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    command = given.pop("command")
    if command is None:
        parser.print_help()
        return 0
    from gateway.settings import ConfigurationError  # after parsing: --help is there at once

    try:
        status: int = import_module(f"gateway.commands.{command}").run(given)
        sys.stdout.flush()
    except ConfigurationError as error:
        print("\n".join(error.lines), file=sys.stderr)
        return 2
    except BrokenPipeError:
        # `… | head`: who reads has enough. Python would write what is left once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("gateway", description=ABOUT, epilog=f"{CONFIGURATION}\n{EXAMPLES}", formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"Chat Stream Gateway {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    file = argparse.ArgumentParser(add_help=False)
    file.add_argument("--config", metavar="FILE", help="the YAML file; else the one GATEWAY_CONFIG names, else none")

    serve = commands.add_parser("serve", parents=[file], help="run the gateway", description="Runs the gateway until Ctrl-C or SIGTERM.")
    serve.add_argument("--host", metavar="HOST", help="the address to listen on (127.0.0.1); any other wants callers' keys, or access.open")
    serve.add_argument("--port", metavar="PORT", help="the port to listen on (8000); 0 takes a free one")

    commands.add_parser(
        "check",
        parents=[file],
        help="validate the configuration and show what it comes to",
        description="Validates the configuration and shows what it comes to; never a key. Exit status 2 if it cannot be used.",
    )

    key = commands.add_parser(
        "key",
        help="make a caller's key, and its line for the keys file",
        description="Makes a key for a caller and shows it once, with the line for the file that access.keys_file names. "
        "Nothing is written anywhere. As soon as one caller has a key, nobody calls without.",
    )
    key.add_argument("name", metavar="NAME", help="what the caller is called in the file and in the log")

    simulate = commands.add_parser(
        "simulate",
        help="run the simulator as a Claude and OpenAI server",
        description="Runs the simulator as a Claude and OpenAI server of its own, without a key. "
        "The options hold for every answer; a request may wish otherwise, in its model or text: speed=0 fault=none.",
    )
    simulate.add_argument("--host", metavar="HOST", help="the address to listen on (127.0.0.1)")
    simulate.add_argument("--port", metavar="PORT", help="the port to listen on (9000); 0 takes a free one")
    simulate.add_argument("--speed", metavar="SECONDS", help="between two events (0.03)")
    simulate.add_argument("--tokens", metavar="N", help="length of the text in words")
    simulate.add_argument("--thinking", metavar="0|1", help="whether it thinks aloud (1)")
    simulate.add_argument("--tool", metavar="0|1", help="whether it calls a tool (1)")
    simulate.add_argument("--chunk", metavar="BYTES", help="cut the stream every so many bytes, whatever its events' borders")
    simulate.add_argument("--wait", metavar="SECONDS", help="of silence before the headers (0)")
    simulate.add_argument(
        "--fault",
        metavar="FAULT",
        help="status:529 (any error status), html, truncate_tool, error (in the stream), cut (by FIN), reset (by RST) or hang",
    )
    simulate.add_argument("--after", metavar="N", help="how many events come before error, cut, reset or hang (5)")

    prints = "Prints the JSON Schema of the configuration or of the events."
    schema = commands.add_parser("schema", help="print a JSON Schema", description=prints)
    schema.add_argument("of", choices=("config", "events"), metavar="config|events", help="what the schema describes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
