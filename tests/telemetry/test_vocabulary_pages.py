"""What is made from the vocabulary has not drifted; whatever names a metric names a real one."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.cli import COMMANDS
from telemetry.conventions import EVENT_KINDS, SPAN_ATTRIBUTES, Kind
from telemetry.prometheus import exposed, grafana
from telemetry.prometheus.boards import BOARDS
from telemetry.tables import TABLES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
SAMPLES = {f.sample for f in exposed.families()}


def rules() -> list[dict[str, Any]]:
    return [r for g in yaml.safe_load(RULES.read_text())["groups"] for r in g["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [r for r in rules() if "alert" in r]


def sections(page: str) -> dict[str, str]:
    """Heading of the second level -> its text."""
    parts = re.split(r"^## (.+)$", (ROOT / page).read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_made_pages_are_what_the_vocabulary_makes():
    made = runpy.run_path(str(ROOT / "docs" / "make_metrics.py"))["made"]()
    stale = [str(p) for p, text in made.items() if not p.exists() or p.read_text() != text]
    assert not stale, f"run python docs/make_metrics.py: {stale}"


def test_every_column_is_on_the_page_once():
    page = (ROOT / "docs" / "metrics.md").read_text()
    for table in TABLES.values():
        if table.log:
            continue
        for column in table.columns:
            if column.kind is not Kind.KEY:
                assert page.count(f"`tenantscope.{table.name}.{column.name}`") == 1


def test_no_two_columns_share_a_name_and_every_one_has_a_meaning():
    families = exposed.families()
    assert len({f.name for f in families}) == len(SAMPLES) == len(families)
    for family in families:
        assert re.fullmatch(r"tenantscope_[a-z_]+[a-z]", family.name)
        assert family.help.endswith(".")
        assert not family.name.endswith(("_total", "_bucket", "_count", "_sum"))


def test_every_kind_of_event_is_on_the_page_once():
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## Kinds of event")[2]
    for kind in EVENT_KINDS.values():
        assert page.count(f"| `{kind.name}` | {kind.by} |") == 1


def test_every_span_attribute_is_declared_and_shown_once():
    names = [a.name for a in SPAN_ATTRIBUTES]
    assert len(set(names)) == len(names)
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## Span attributes")[2]
    for attribute in SPAN_ATTRIBUTES:
        assert attribute.meaning
        assert page.count(f"| `{attribute.name}` | `{attribute.unit}` |") == 1


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("*.y*ml")), ids=lambda p: p.name)
def test_deployed_files_are_yaml(path: Path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_every_metric_named_in_rules_and_boards_is_exposed():
    recorded = {r["record"] for r in rules() if "record" in r}
    boards = [json.loads(p.read_text()) for p in (DEPLOY / "grafana").rglob("*.json")]
    shown = [t["expr"] for b in boards for p in b["panels"] for t in p["targets"]]
    assert sorted(shown) == sorted(grafana.queries())
    for expression in (*shown, *(r["expr"] for r in rules())):
        named = set(re.findall(r"tenantscope[\w:]+", expression)) - recorded
        assert named <= SAMPLES, expression
        assert expression.count("(") == expression.count(")")
    unused = {
        r for r in recorded if not any(r in o["expr"] for o in rules() if o.get("record") != r)
    }
    assert not unused


def test_labels_that_queries_match_are_labels_of_the_metric():
    labels = {f.sample: set(f.labels) for f in exposed.families()}
    for query in grafana.queries():
        for name, selector in re.findall(r"(tenantscope\w+)\{([^}]*)\}", query):
            assert set(re.findall(r'(\w+)=~?"', selector)) <= labels[name], query


def test_a_board_shows_each_panel_once_and_explains_it():
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json"):
        panels = json.loads(path.read_text())["panels"]
        places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
        assert len(places) == len(panels) == len({p["title"] for p in panels})
        assert all(p["description"] for p in panels)


def test_every_alert_has_five_steps_in_the_runbook_and_every_section_an_alert():
    pages = sections("docs/runbook.md")
    assert set(pages) == {a["alert"] for a in alerts()}
    for alert in alerts():
        name = alert["alert"]
        base = "{{ with $externalLabels.runbook }}{{ . }}{{ else }}docs/runbook.md{{ end }}"
        assert alert["annotations"]["runbook_url"] == f"{base}#{name.lower()}"
        assert alert["annotations"]["summary"]
        assert alert["labels"]["severity"] in ("page", "warn", "info", "none")
        assert re.findall(r"^(\d)\. ", pages[name], flags=re.M) == list("12345"), name
        paged = alert["labels"]["severity"] == "page"
        assert ("You were paged: five steps." in pages[name]) == paged, name


def test_the_runbook_names_metrics_commands_and_panels_that_there_are():
    text = (ROOT / "docs" / "runbook.md").read_text()
    assert set(re.findall(r"tenantscope_\w+[a-z]\b(?!_)", text)) <= SAMPLES
    assert set(re.findall(r"`tenantscope ([a-z]+)", text)) <= set(COMMANDS)
    titles = {p.title for _, panels in BOARDS.values() for p in panels}
    after_board = re.findall(
        r"Dashboard \*(?:tenants|waits|holders)\*, (?:panels? )?\*([^*]+)\*", text
    )
    assert after_board
    assert {" ".join(t.split()) for t in after_board} <= titles | {"TTFT"}
    anchors = {a["alert"].lower() for a in alerts()}
    assert set(re.findall(r"\(#(\w+)\)", text)) <= anchors


def test_every_alert_is_tried_where_it_should_fire_and_where_it_should_not():
    tries = [
        t
        for path in sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["tests"]
        for t in group["alert_rule_test"]
    ]
    for alert in alerts():
        name = alert["alert"]
        fires = {bool(t["exp_alerts"]) for t in tries if t["alertname"] == name}
        always = alert["expr"] == "vector(1)"
        assert fires == ({True} if always else {True, False}), name


def test_compose_mounts_what_is_there():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (DEPLOY / source).exists(), volume


def test_one_port_everywhere():
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    collector = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
    theirs = collector["receivers"]["prometheus"]["config"]["scrape_configs"]
    for job in (*scrape["scrape_configs"], *theirs):
        assert job["job_name"] == "tenantscope"
        assert job["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
