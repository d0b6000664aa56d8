"""The page needs nothing but itself, and no name in it is more than a name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC
from html.parser import HTMLParser
from pathlib import Path

import pytest

from postmortem.report import drawing, html
from postmortem.report.charts import charts, curve
from telemetry.plain import safe
from tests.postmortem.test_report import NASTY, incident, report_of
from tests.telemetry.synthetic_rows import Pool

WORST = "</script><img src=x onerror=alert(1)>"
HOSTILE = [*NASTY, WORST, "' onmouseover='x", "<!--", "]]>",
           "datum.x", "__proto__", "\u2028line"]  # fmt: skip
VOID = {"meta", "br", "img", "link", "input", "hr"}
FETCHING = {"src", "href", "xlink:href", "action", "data", "poster", "srcset", "formaction"}


class Page(HTMLParser):
    """Tags, attributes and the text between them; fails where tags do not close."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self.open and self.open[-1] != "style":
            self.words += data


@pytest.fixture(scope="module", autouse=True)
def kept_code(tmp_path_factory):
    """The drawing code, made once for these tests and kept apart from the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def hostile() -> str:
    first, *others = (n for n in HOSTILE if n != WORST)
    return html.render(report_of(incident(WORST, (first, *others)), 8, 18), UTC)


def test_the_page_asks_nothing_of_any_network(hostile: str):
    page = Page(hostile)
    for tag, attrs in page.tags:
        for name in FETCHING & set(attrs):
            assert (attrs[name] or "").startswith("#"), (tag, attrs)
        assert "url(" not in (attrs.get("style") or "")
        assert tag not in ("link", "iframe", "object", "embed", "img", "base", "form")
    assert not re.search(r"@import|url\((?!#)", hostile.split("</style>")[0])
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy


def test_the_page_is_small_enough_to_send(hostile: str):
    assert len(hostile.encode()) < 1_500_000


def test_hostile_names_are_text_and_nothing_else(hostile: str):
    page = Page(hostile)
    known = {"data-chart", "aria-label", "class", "id", "href", "role", "tabindex", "scope",
             "lang", "charset", "http-equiv", "content", "name", "type", "hidden",
             "aria-hidden"}  # fmt: skip
    svg = False
    for tag, attrs in page.tags:
        svg = svg or tag == "svg"
        assert not [a for a in attrs if a.startswith("on")], (tag, attrs)
        if not svg:
            assert set(attrs) <= known, (tag, attrs)
    for name in HOSTILE:
        assert safe(name) in page.words, name
    assert "alert(1)" not in "".join(text for a, text in page.scripts if "type" not in a)


def test_names_in_the_charts_are_json_in_which_no_tag_can_begin(hostile: str):
    page = Page(hostile)
    [(_, data)] = [(a, t) for a, t in page.scripts if a.get("type") == "application/json"]
    assert not set("<>&\u2028\u2029") & set(data)
    shown = {row["tenant"] for row in _values(json.loads(data)["curve"]) if "tenant" in row}
    assert any("script" in name for name in shown)
    assert len(page.scripts) == 3


def _values(spec: dict) -> list[dict]:
    return [row for d in spec["data"] for row in d.get("values", []) if isinstance(row, dict)]


def test_no_name_gets_into_an_expression():
    """A chart of odd names is the chart of plain ones but for its values."""
    plain = report_of(incident("one", ("two", "three", "four")), 8, 18)
    odd = report_of(incident("datum.x", ("a'b", 'c"d', "e\\f")), 8, 18)
    for name in ("curve", "waits", "heat"):
        ours, theirs = (_expressions(drawing.draw(charts(r, UTC)[name]).vega) for r in (plain, odd))
        assert ours == theirs


def _expressions(value) -> list[str]:
    if isinstance(value, dict):
        own = [v for k, v in value.items() if k in ("signal", "expr", "test", "update", "filter")
               and isinstance(v, str)]  # fmt: skip
        return sorted([*own, *(e for v in value.values() for e in _expressions(v))])
    if isinstance(value, list):
        return sorted(e for v in value for e in _expressions(v))
    return []


def test_every_table_has_as_many_cells_in_each_row(hostile: str):
    for table in re.findall(r"<table>.*?</table>", hostile, re.S):
        rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
        assert len({len(re.findall(r"<t[dh]\b", row)) for row in rows}) == 1


def test_two_pictures_share_no_identifier(hostile: str):
    ids = re.findall(r'\bid="([^"]+)"', hostile)
    assert len(ids) == len(set(ids))


def test_the_still_pictures_are_there_without_scripts_and_in_print(hostile: str):
    page = Page(hostile)
    still = [a for t, a in page.tags if a.get("class") == "still"]
    assert len(still) == 3
    assert all("hidden" not in a and a["role"] == "img" and a["aria-label"] for a in still)
    style = hostile.split("<style>")[1].split("</style>")[0]
    printed = style.split("@media print")[1]
    assert ".still[hidden] { display: block; }" in printed
    assert ".live { display: none; }" in printed
    assert "--paper: #fff" in printed
    assert "size: A4" in style
    assert "prefers-color-scheme: dark" in style


def test_what_scrolls_and_what_is_linked_can_be_reached_by_keys(hostile: str):
    page = Page(hostile)
    wide = [a for t, a in page.tags if a.get("class") == "wide" or t == "pre"]
    assert wide
    assert all(a.get("tabindex") == "0" for a in wide)
    targets = {a["id"] for _, a in page.tags if "id" in a}
    links = [a["href"] for t, a in page.tags if t == "a"]
    assert links
    assert all(link[1:] in targets for link in links)


def test_a_quiet_window_has_a_page_too():
    page = Page(html.render(report_of(Pool().calm(0, 20), 10, 20), UTC))
    assert "nobody is hurt" in page.words


def test_a_bucket_that_was_not_heard_is_a_hole_in_the_curve():
    pool = Pool().calm(0, 10).flood(10, 12).flood(14, 16)
    report = report_of(pool, 8, 16)
    made = curve(report, UTC)
    assert made is not None
    starts = {row["a"] for row in made["vconcat"][0]["data"]["values"]}
    assert len(starts) == 6
    for p in report.curve.points:
        assert sum(s or 0.0 for s in p.shares) == pytest.approx(1.0)


def test_two_names_that_look_alike_once_clipped_stay_two():
    pool = incident("x" * 40 + "1", ("x" * 40 + "2", "y"))
    made = curve(report_of(pool, 8, 18), UTC)
    assert made is not None
    domain = made["vconcat"][0]["encoding"]["color"]["scale"]["domain"]
    assert len(domain) == len(set(domain)) == 3


def test_code_that_cannot_be_made_leaves_the_still_pictures(monkeypatch: pytest.MonkeyPatch):
    def refuse(say):
        raise RuntimeError("no such module\nmore")

    monkeypatch.setattr(html, "runtime", refuse)
    said: list[str] = []
    page = Page(html.render(report_of(incident(), 8, 18), UTC, say=said.append))
    assert page.scripts == []
    assert said == ["the charts are still pictures only: no such module"]
    assert sum(t == "svg" for t, _ in page.tags) == 3


def test_the_drawing_code_is_made_once_and_half_a_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(drawing, "bundle", lambda: "made()")
    told: list[str] = []
    first = drawing.runtime(told.append)
    assert drawing.runtime(told.append) == first
    assert len(told) == 1
    [kept] = drawing.cache_folder().iterdir()
    kept.write_text(first[:3])
    assert drawing.runtime(told.append) == first
    assert len(told) == 2


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "tenantscope").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(drawing, "bundle", lambda: "made()")
    assert drawing.runtime().startswith("made()")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_code_in_the_page_draws_its_charts(hostile: str, tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text(hostile)
    code = """
      const page = require('fs').readFileSync(process.argv[1], 'utf8');
      const data = page.match(/<script type="application\\/json" id="charts">([^<]*)/)[1];
      const code = [...page.matchAll(/<script>([\\s\\S]*?)<\\/script>/g)].map(m => m[1]);
      globalThis.window = globalThis;
      (0, eval)(code[0]);
      new Function(code[1]);
      Promise.all(Object.entries(JSON.parse(data)).map(async ([name, spec]) => {
        const view = new tenantscopeVega.View(tenantscopeVega.parse(spec), {renderer: 'none'});
        return name + ' ' + (await view.toSVG()).startsWith('<svg');
      })).then(r => console.log(r.sort().join(', ')), e => { console.error(e); process.exit(1); });
    """
    done = subprocess.run(
        ["node", "-e", code, str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "curve true, heat true, waits true", done.stderr[-400:]
