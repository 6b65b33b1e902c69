"""The README's plot, written as SVG: cost of a delta, and what is added to the first one. Works on light and dark pages."""

from collections.abc import Mapping
from html import escape

from tests.bench.report import Report, number

WIDTH, LEFT, RIGHT, BAR, STEP = 760, 150, 90, 16, 26
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 14px; fill: #24292f }
  .value { font-weight: 600; fill: #24292f }
  .gateway { fill: #0969da } .nginx { fill: #8c959f } .naive { fill: #cf8f4a } .litellm { fill: #b35900 }
  .line { stroke: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #8d96a0 } .title, .value { fill: #e6edf3 } .gateway { fill: #4493f8 } .line { stroke: #30363d }
  }
"""
LABELS = {"gateway": "this gateway", "nginx": "nginx (bytes only)", "naive": "FastAPI + httpx"}
PANELS = {
    "saturated_claude": "CPU per delta, Claude upstream, as fast as it comes (µs)",
    "saturated_openai": "CPU per delta, OpenAI upstream, as fast as it comes (µs)",
    "first_delta": "Added to the time of the first token, idle process (ms)",
}


def svg(report: Report) -> str:
    values = {row.key: row.values for row in report.rows}
    panels = [(title, values[key]) for key, title in PANELS.items() if key in values]
    parts, y = [], 10
    for title, bars in panels:
        drawn, y = _panel(title, bars, y)
        parts.append(drawn)
    label = "; ".join(f"{title}: " + ", ".join(f"{LABELS[n]} {number(v)}" for n, v in bars.items()) for title, bars in panels)
    caption = f'<text x="0" y="{y + 12}" font-size="11">{escape(report.machine)} · {escape(report.date)} · make bench</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 20}" role="img" aria-label="{escape(label)}">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + f"\n{caption}\n</svg>\n"
    )


def _panel(title: str, bars: Mapping[str, float], y: int) -> tuple[str, int]:
    most = max(bars.values())
    lines = [f'<text class="title" x="0" y="{y + 12}">{escape(title)}</text>']
    y += 24
    for name, value in bars.items():
        length = max(2.0, (WIDTH - LEFT - RIGHT) * value / most)
        lines += [
            f'<text x="{LEFT - 10}" y="{y + 13}" text-anchor="end">{escape(LABELS[name])}</text>',
            f'<rect class="{name}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text class="value" x="{LEFT + length + 8:.1f}" y="{y + 13}">{number(value)}</text>',
        ]
        y += STEP
    lines.append(f'<line class="line" x1="{LEFT}" y1="{y - STEP - 2 - (len(bars) - 1) * STEP}" x2="{LEFT}" y2="{y - 8}"/>')
    return "\n".join(lines), y + 14
