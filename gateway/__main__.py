"""The command line: `gateway …`, or `python -m gateway …`."""

import argparse
import io
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
    except ConfigurationError as error:
        print("\n".join(error.lines), file=sys.stderr)
        return 2
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
    serve.add_argument("--host", metavar="HOST", help="the address to listen on: 127.0.0.1, localhost or ::1")
    serve.add_argument("--port", metavar="PORT", help="the port to listen on (8000); 0 takes a free one")

    commands.add_parser(
        "check",
        parents=[file],
        help="validate the configuration and show what it comes to",
        description="Validates the configuration and shows what it comes to; never a key. Exit status 2 if it cannot be used.",
    )

    prints = "Prints the JSON Schema of the configuration or of the events."
    schema = commands.add_parser("schema", help="print a JSON Schema", description=prints)
    schema.add_argument("of", choices=("config", "events"), metavar="config|events", help="what the schema describes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
