"""A picture of what `scale` found: an SVG by hand, so that nothing has to be installed for it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from xml.sax.saxutils import escape

from rota.sim.scale import Moved

WIDTH, LEFT, TOP, ROW, BAR = 760, 170, 70, 46, 14
FONT = 'font-family="sans-serif" font-size="12"'
SERIES = (("join", "#4477aa"), ("leave", "#66ccaa"), ("crash", "#cc6677"))


def picture(found: Sequence[Moved], nodes: int, jobs: int) -> str:
    """Jobs moved by a join, a leave and a crash, on a logarithmic scale: one group of bars for each placement."""
    height = TOP + ROW * len(found) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="15">Jobs that move: {jobs:,} jobs on {nodes:,} schedulers</text>',
        *_legend(),
        *_grid(jobs, height),
    ]
    for place, it in enumerate(found):
        parts += _group(it, TOP + ROW * place, jobs)
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    lines = []
    for place, (name, colour) in enumerate(SERIES):
        x = LEFT + 90 * place
        lines.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 18}" y="46">{name}</text>')
    return lines


def _grid(jobs: int, height: int) -> list[str]:
    lines = []
    for power in range(int(log10(max(jobs, 1))) + 1):
        x = LEFT + _length(10**power, jobs)
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 30}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle" fill="#666666">{10**power:,}</text>')
    return lines


def _group(it: Moved, y: int, jobs: int) -> list[str]:
    lines = [f'<text x="{LEFT - 10}" y="{y + 25}" text-anchor="end">{escape(it.placement)}</text>']
    for place, (name, colour) in enumerate(SERIES):
        value, top = getattr(it, name), y + place * (BAR - 1)
        width = _length(value, jobs)
        lines.append(f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR - 3}" fill="{colour}"/>')
        lines.append(f'<text x="{LEFT + width + 5:.1f}" y="{top + 10}" font-size="10">{value:,}</text>')
    return lines


def _length(value: float, jobs: int) -> float:
    """From 1 to all jobs over the whole width; less than 1 has no length."""
    room = WIDTH - LEFT - 70
    return room * log10(value) / log10(max(jobs, 10)) if value > 1 else 0.0
