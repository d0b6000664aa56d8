"""The report as one HTML page that needs nothing else: no network, no other file.

Every name and text is escaped; data for the charts is JSON in which no tag can begin. The page
forbids itself every connection, so that it cannot be made to make one.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from datetime import tzinfo

from postmortem.report.cells import BARS
from postmortem.report.charts import charts
from postmortem.report.document import Code, Figure, Grid, Section
from postmortem.report.drawing import Drawn, draw, runtime
from postmortem.report.model import Report
from postmortem.report.page import SCRIPT, STYLE
from postmortem.report.told import document, title
from telemetry.plain import safe

# Vega makes functions of its own expressions, which no name gets into.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
_UNSAFE_IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026",
                     "\u2028": "\\u2028", "\u2029": "\\u2029"}  # fmt: skip
_IDS = re.compile(r'\b(id="|href="#|url\(#)')
_BARS = frozenset(BARS + ".?")


def render(
    report: Report,
    zone: tzinfo | None = None,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> str:
    """The page. `say` hears of what takes a while (once for a machine)."""
    drawn = {name: draw(spec) for name, spec in charts(report, zone).items()}
    sections = document(report, zone)
    head = text(title(report, zone))
    body = [
        f"<h1>{head}</h1>",
        _contents(sections),
        *(
            _section(s, i, drawn, lead=i == 0)
            for i, s in enumerate(sections)
        ),
        '<p class="foot">Made by tenantscope from the rows named in the appendix. '
        "Fields marked [to fill in] are for people.</p>",
    ]  # fmt: skip
    scripts = _scripts(drawn, say) if drawn else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{head}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + f"\n</main>\n{scripts}</body>\n</html>\n"
    )


def _scripts(drawn: Mapping[str, Drawn], say: Callable[[str], None]) -> str:
    """What makes the charts live. Without it they are the still pictures they are anyway."""
    try:
        code = runtime(say)
    except RuntimeError as e:
        say(f"the charts are still pictures only: {str(e).splitlines()[0]}")
        return ""
    data = in_script({name: d.vega for name, d in drawn.items()})
    return (
        f'<script type="application/json" id="charts">{data}</script>\n'
        f"<script>{_closed(code)}</script>\n<script>{SCRIPT}</script>\n"
    )


def text(value: str) -> str:
    """Text between tags or in a quoted attribute: it shows itself and nothing else."""
    return html.escape(safe(value), quote=True)


def in_script(value: object) -> str:
    """JSON that ends no script element and begins no other, whatever names stand in it."""
    made = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return "".join(_UNSAFE_IN_SCRIPT.get(c, c) for c in made)


def _closed(script: str) -> str:
    """Code that holds no end of its own element."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _contents(sections: tuple[Section, ...]) -> str:
    items = "".join(f'<li><a href="#s{i}">{text(s.title)}</a></li>' for i, s in enumerate(sections))
    return f'<nav aria-label="Contents"><ol>{items}</ol></nav>'


def _section(section: Section, i: int, drawn: Mapping[str, Drawn], *, lead: bool) -> str:
    out = [f'<section id="s{i}">', f"<h2>{text(section.title)}</h2>"]
    for part in section.parts:
        if isinstance(part, Grid):
            out.append(_table(part, section.title))
        elif isinstance(part, Code):
            lines = "\n".join(text(line) for line in part.lines)
            out.append(f'<pre tabindex="0"><code>{lines}</code></pre>')
        elif isinstance(part, Figure):
            if part.name in drawn:
                out.append(_figure(part, drawn[part.name]))
        elif isinstance(part, tuple):
            items = "".join(f"<li>{text(line)}</li>" for line in part)
            kind = ' class="lead"' if lead else ""
            out.append(f"<div{kind}><ul>{items}</ul></div>")
            lead = False
        else:
            out.append(f"<p>{text(part)}</p>")
    out.append("</section>")
    return "\n".join(out)


def _table(grid: Grid, label: str) -> str:
    head = "".join(
        f'<th scope="col"{_right(grid, i)}>{text(h)}</th>' for i, h in enumerate(grid.head)
    )
    rows = "".join(
        "<tr>" + "".join(f"<td{_kind(grid, i, c)}>{_cell(c)}</td>" for i, c in enumerate(row))
        + "</tr>\n"
        for row in grid.rows
    )  # fmt: skip
    # Wider than the window it scrolls by itself, by keys too.
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{text(label)}"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )


def _right(grid: Grid, i: int) -> str:
    return ' class="n"' if i in grid.right else ""


def _kind(grid: Grid, i: int, cell: str) -> str:
    if len(cell) > 3 and set(cell) <= _BARS:
        return ' class="bars"'
    return _right(grid, i)


def _cell(cell: str) -> str:
    # A name written from right to left stays in its cell.
    return text(cell) if cell.isascii() else f"<bdi>{text(cell)}</bdi>"


def _figure(figure: Figure, drawn: Drawn) -> str:
    # Clips and gradients are named in every picture alike: two pictures must not share them.
    svg = _IDS.sub(lambda m: m[1] + figure.name + "-", drawn.svg)
    return (
        f'<figure><div class="chart" data-chart="{figure.name}">'
        f'<div class="still" role="img" aria-label="{text(figure.caption)}">{svg}</div></div>'
        f"<noscript><p>A still picture: this page may not run scripts.</p></noscript>"
        f"<figcaption>{text(figure.caption)} The table below has the numbers.</figcaption></figure>"
    )
