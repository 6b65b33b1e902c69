"""The table: rows of numbers from one run, each with its target and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

SYSTEMS = ("gateway", "nginx", "naive")
CELL = 10
WIDTH = 130


@dataclass(frozen=True, slots=True)
class Row:
    """`met` is None where nothing was promised; `outcome` says the ratio that the verdict rests on."""

    key: str
    title: str
    unit: str
    values: Mapping[str, float]
    target: str = ""
    outcome: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Report:
    date: str
    machine: str
    versions: str
    sections: list[Section]
    notes: list[str]

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for row in section.rows]


COLOURS = {"bold": "1", "dim": "2", "green": "32", "red": "31", "cyan": "36"}


class Paint:
    """ANSI colours, where somebody looks."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def __call__(self, colour: str, text: str) -> str:
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self._wanted and text.strip() else text


def table(report: Report, paint: Paint, systems: Sequence[str] = SYSTEMS) -> str:
    rows = report.rows
    titles, units, outcomes, targets = (
        max(len(getattr(row, name)) for row in rows) for name in ("title", "unit", "outcome", "target")
    )
    lines = ["", f"  {paint('bold', 'Chat Stream Gateway · benchmark')}", f"  {paint('dim', f'{report.date} · {report.machine}')}"]
    lines += [f"  {paint('dim', line)}" for line in wrap(report.versions, WIDTH)]
    for section in report.sections:
        heads = "".join(paint("cyan" if name == systems[0] else "dim", name.rjust(CELL)) for name in systems)
        lines += ["", f"  {paint('bold', section.title.ljust(titles + units + 2))}{heads}"]
        lines.append(f"  {paint('dim', '─' * (titles + units + CELL * len(systems) + outcomes + targets + 16))}")
        for row in section.rows:
            cells = [(number(row.values[name]) if name in row.values else "").rjust(CELL) for name in systems]
            cells[0] = paint("bold", cells[0])
            line = f"  {row.title.ljust(titles)}  {paint('dim', row.unit.ljust(units))}{''.join(cells)}"
            line += f"   {row.outcome.ljust(outcomes)}  {paint('dim', row.target.ljust(targets))}  "
            lines.append((line + _verdict(row, paint)).rstrip())
    lines.append("")
    if promised := [row.met for row in rows if row.met is not None]:
        lines.append("  " + paint("green" if all(promised) else "red", f"{promised.count(True)} of {len(promised)} targets met"))
    lines += [f"  {paint('dim', line)}" for note in report.notes for line in wrap(note, WIDTH)]
    return "\n".join([*lines, ""])


def _verdict(row: Row, paint: Paint) -> str:
    if row.met is None:
        return ""
    return paint("green", "✓ met") if row.met else paint("red", "✗ missed")


def number(value: float) -> str:
    """Three digits that mean something."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def per(value: float, other: float) -> str:
    return f"{number(value / other)}×"
