"""The page's looks and the few lines that make its charts live. Text only; knows no report."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --soft: #5c5c63; --paper: #ffffff;
  --line: #d4d4da; --band: #f3f3f6; --mark: #b3123f; --link: #0a5bb5; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf0; --soft: #a5a5ae; --paper: #151518;
  --line: #3a3a42; --band: #202026; --mark: #ff7c9d; --link: #8ab8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav ol { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: 0 0 1rem;
  list-style: none; font-size: .85rem; }
.lead { border-left: 4px solid var(--mark); background: var(--band); padding: .6rem 1rem;
  margin: .5rem 0 1rem; font-size: 1.05rem; }
.lead ul { margin: 0; padding-left: 1.1rem; }
.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; background: var(--band); }
.n { text-align: right; white-space: nowrap; }
td { max-width: 32rem; }
td.bars { white-space: pre; font-family: ui-monospace, monospace; letter-spacing: -.02em; }
pre { background: var(--band); border: 1px solid var(--line); padding: .5rem .7rem;
  overflow-x: auto; font: .8rem/1.45 ui-monospace, monospace; white-space: pre-wrap; }
bdi { unicode-bidi: isolate; }
figure { margin: .8rem 0; }
figcaption { color: var(--soft); font-size: .85rem; }
.chart { overflow-x: auto; position: relative; }
.chart svg { max-width: 100%; height: auto; }
.chart svg .role-axis-label text, .chart svg .role-axis-title text,
.chart svg .role-legend-label text, .chart svg .role-legend-title text { fill: var(--ink); }
.chart[data-chart="curve"] svg .role-mark text { fill: var(--ink); }
.still[hidden] { display: none; }
#tip { position: fixed; z-index: 9; pointer-events: none; max-width: 20rem; padding: .3rem .5rem;
  background: var(--ink); color: var(--paper); font-size: .8rem; white-space: pre-line;
  border-radius: 3px; }
.foot { color: var(--soft); font-size: .8rem; margin-top: 3rem; }
@page { size: A4; margin: 14mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --paper: #fff; --line: #bbb;
    --band: #f4f4f4; --mark: #b3123f; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, #tip { display: none; }
  h2 { break-after: avoid; }
  figure, tr, pre, .lead { break-inside: avoid; }
  .wide, .chart, pre { overflow: visible; }
  table { font-size: 8pt; }
  td { max-width: none; }
  .live { display: none; }
  .still[hidden] { display: block; }
}
"""

# Draws each chart anew so that it can be pointed at. Names reach the page as text only. Where this
# does not run, or fails, the still picture is what is seen.
SCRIPT = """
(() => {
  const all = JSON.parse(document.getElementById('charts').textContent);
  const tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; tip.setAttribute('role', 'status');
  document.body.appendChild(tip);
  const show = (handler, event, item, value) => {
    tip.hidden = value == null || value === '';
    if (tip.hidden) return;
    tip.textContent = typeof value === 'object'
      ? Object.entries(value).map(([k, v]) => k + ': ' + v).join('\\n') : String(value);
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, x) + 'px';
    tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
  };
  for (const [name, spec] of Object.entries(all)) {
    const box = document.querySelector('[data-chart="' + name + '"]');
    const still = box && box.querySelector('.still');
    if (!still || !window.tenantscopeVega) continue;
    const live = document.createElement('div');
    live.className = 'live'; live.setAttribute('aria-hidden', 'true');
    const view = new tenantscopeVega.View(tenantscopeVega.parse(spec), {
      renderer: 'svg', container: live, hover: true, logLevel: 0, tooltip: show });
    view.runAsync().then(() => { box.appendChild(live); still.hidden = true; },
      () => { still.hidden = false; });
  }
  addEventListener('keydown', (e) => { if (e.key === 'Escape') tip.hidden = true; });
})();
"""
