"""What operators change on top of a settings file: values, expiry, undo, the file that keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.admin import edits
from engine.admin.diff import differences, lifted, live_part
from engine.admin.errors import ChangeRefused, OverlayLost
from engine.admin.in_force import Edit, InForce, served
from engine.admin.kept import with_changes
from engine.admin.overlay import KEPT, MOST_IN_FORCE, Change, End, Overlay
from engine.admin.overlay_file import OverlayFile
from engine.admin.room import read_overlay
from engine.config import Settings, Slo, Tenant
from engine.config_pools import PoolSpec

ODD = ('we"ird', "-dash", "[bold]x[/]", "名前", "a b", "none", "' OR 1=1 --", "🙂‍↔️")
BASE = Settings(
    tenants=(
        Tenant("a", rpm=100, rpm_burst=500, tpm=9000, concurrency=8, adapters=("one",)),
        Tenant("b"),
        *(Tenant(name) for name in ODD),
    ),
    adapters=(("one", "/adapters/one"), ("two", "/adapters/two")),
)
NOW = InForce(BASE)
END = End(7.0, "bob", "enough")


def with_edit(overlay: Overlay, edit: Edit, until: float | None = None, at: float = 0.0) -> Overlay:
    return overlay.with_change(edit, "what", at, until, "op", "why")


# -- values


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("rpm", "-1"), ("rpm", "1e3"), ("rpm", "inf"), ("rpm", ""), ("rpm", " 6"), ("rpm", "6.5"),
        ("rpm", "٦٠"), ("rpm", "unlimited"), ("tpm", "nan"), ("concurrency", "None"),
        ("weight", "0"), ("weight", "none"), ("weight", "1000001"), ("weight", "-2"),
        ("tier", "gold"), ("tier", "1001"), ("tier", "1.5"), ("slots", "4"), ("rpm_burst", "9"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused_with_what_may_stand_there(key: str, word: str) -> None:
    with pytest.raises(ChangeRefused) as refused:
        edits.tenant_edit(NOW, "a", {key: word})
    assert key in str(refused.value)


def test_a_number_that_is_only_too_long_is_told_so() -> None:
    with pytest.raises(ChangeRefused, match="in at most 15 figures"):
        edits.tenant_edit(NOW, "a", {"rpm": "9" * 16})
    assert edits.tenant_edit(NOW, "a", {"rpm": "9" * 15}).values == {"rpm": 10**15 - 1}


def test_words_become_values() -> None:
    words = {"rpm": "none", "tpm": "0", "concurrency": "3", "weight": "0.25", "tier": "low"}
    edit = edits.tenant_edit(NOW, "a", words)
    assert edit.values == {"rpm": None, "tpm": 0, "concurrency": 3, "weight": 0.25, "tier": 10}


def test_a_cap_takes_the_files_burst_with_it_or_it_would_let_a_burst_through() -> None:
    now = with_edit(Overlay(), edits.tenant_edit(NOW, "a", {"rpm": "6"})).on(BASE)
    tenant = now.settings.tenant("a")
    assert tenant is not None
    assert (tenant.rpm, tenant.rpm_burst) == (6, None)


def test_moving_to_a_pool_is_refused_where_there_is_one() -> None:
    with pytest.raises(ChangeRefused, match="'gold' is not served here; there are 'main'"):
        edits.move_edit(NOW, "a", "gold")
    with pytest.raises(ChangeRefused, match="'main', the only one of this engine already"):
        edits.move_edit(NOW, "a", "main")
    with pytest.raises(ChangeRefused, match="tenant move"):
        edits.tenant_edit(NOW, "a", {"pool": "gold"})


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_is_data(name: str) -> None:
    overlay = with_edit(Overlay(), edits.tenant_edit(NOW, name, {"rpm": "6"}))
    kept = Overlay.load(overlay.dump())
    tenant = kept.on(BASE).settings.tenant(name)
    assert tenant is not None
    assert tenant.rpm == 6
    assert kept == overlay


def test_unknown_tenants_and_adapters_are_refused() -> None:
    for make in (
        lambda: edits.tenant_edit(NOW, "nobody", {"rpm": "6"}),
        lambda: edits.drain_edit(NOW, "nobody"),
        lambda: edits.unload_edit(NOW, "three"),
        lambda: edits.pin_edit(NOW, "three"),
        lambda: edits.load_edit(NOW, "one", "/f", ("a",)),
        lambda: edits.load_edit(NOW, "new", "/f", ()),
        lambda: edits.load_edit(NOW, "new", "/f", ("nobody",)),
        lambda: edits.load_edit(NOW, "new\nline", "/f", ("a",)),
        lambda: edits.policy_edit(NOW, "lottery"),
    ):
        with pytest.raises(ChangeRefused):
            make()


# -- what holds


def test_a_tenant_that_drains_is_let_nothing_new_through_and_gets_its_own_limit_back() -> None:
    drains = with_edit(Overlay(), edits.drain_edit(NOW, "a"))
    tenant = served(drains.on(BASE)).tenant("a")
    assert tenant is not None
    assert tenant.concurrency == 0
    after = drains.without("drain", "a", END)
    assert after is not None
    assert served(after.on(BASE)) == BASE


def test_an_adapter_that_is_unloaded_is_nobodys_and_one_that_is_loaded_its_tenants() -> None:
    gone = with_edit(Overlay(), edits.unload_edit(NOW, "one")).on(BASE).settings
    assert [n for n, _ in gone.adapters] == ["two"]
    assert gone.tenants[0].adapters == ()
    new = with_edit(Overlay(), edits.load_edit(NOW, "new", "/f", ("b",))).on(BASE).settings
    assert ("new", "/f") in new.adapters
    assert new.tenants[1].adapters == ("new",)
    assert new.tenants[0].adapters == ("one",)


def test_what_a_change_was_about_may_be_gone_from_the_file() -> None:
    overlay = with_edit(Overlay(), edits.tenant_edit(NOW, "b", {"rpm": "6"}))
    overlay = with_edit(overlay, edits.pin_edit(NOW, "two"))
    smaller = replace(BASE, tenants=BASE.tenants[:1], adapters=BASE.adapters[:1])
    assert overlay.on(smaller) == InForce(smaller)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                Edit("tenant", "a", {"rpm": 6}),
                Edit("tenant", "a", {"rpm": None, "weight": 0.5}),
                Edit("tenant", "b", {"tier": 10, "concurrency": 0}),
                Edit("drain", "a"),
                Edit("policy", "fcfs"),
                Edit("load", "new", {"folder": "/f", "tenants": ["b"]}),
                Edit("unload", "one"),
                Edit("pin", "two"),
            ]
        ),
        st.floats(1.0, 100.0),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(CHANGES)
def test_when_every_change_is_over_the_files_settings_are_back(changes) -> None:
    overlay = Overlay()
    for edit, until in changes:
        overlay = with_edit(overlay, edit, until)
    after, over = overlay.expired(100.0)
    assert after.on(BASE) == InForce(BASE)
    assert len(over) == len(changes)
    assert after.next_expiry_s is None
    assert Overlay.load(after.dump()) == after


@settings(deadline=None)
@given(CHANGES, st.floats(0.0, 100.0))
def test_what_ends_leaves_exactly_what_the_others_make(changes, now) -> None:
    overlay, left = Overlay(), Overlay()
    for edit, until in changes:
        overlay = with_edit(overlay, edit, until)
        if until > now:
            left = with_edit(left, edit, until)
    assert overlay.expired(now)[0].on(BASE) == left.on(BASE)


@settings(deadline=None)
@given(CHANGES)
def test_undoing_every_change_leads_back_and_each_step_counts_a_version(changes) -> None:
    overlay = Overlay()
    states = [overlay.on(BASE)]
    for edit, until in changes:
        overlay = with_edit(overlay, edit, until)
        states.append(overlay.on(BASE))
    for _ in changes:
        assert overlay.on(BASE) == states.pop()
        found = overlay.without_last(END)
        assert found is not None
        assert found[0].version == overlay.version + 1
        overlay = found[0]
    assert overlay.without_last(END) is None
    assert overlay.on(BASE) == InForce(BASE)


def test_who_ended_a_change_when_and_why_is_kept(tmp_path: Path) -> None:
    overlay = with_edit(Overlay(), Edit("drain", "a"), until=50.0)
    overlay = with_edit(overlay, Edit("policy", "fcfs"))
    undone = overlay.without_last(END)
    assert undone is not None
    kept = OverlayFile(tmp_path / "operator.json")
    kept.write(undone[0].expired(70.0)[0])
    ends = [(c.state, c.ended_unix_s, c.ended_by, c.ended_why) for c in kept.read().changes]
    assert ends == [
        ("expired", 50.0, "tenantscope", "its time is over"), ("undone", 7.0, "bob", "enough"),
    ]  # fmt: skip


def test_a_file_from_before_ends_were_kept_is_read(tmp_path: Path) -> None:
    raw = json.loads(with_edit(Overlay(), Edit("drain", "a")).dump())
    del raw["seen_unix_s"]
    for key in ("ended_unix_s", "ended_by", "ended_why"):
        del raw["changes"][0][key]
    assert Overlay.load(json.dumps(raw)).changes[0].ended_by == ""


@settings(deadline=None)
@given(st.floats(0.0, 1e6), st.floats(-1e6, 1e6), st.floats(1.0, 1e6))
def test_a_clock_set_back_while_nobody_ran_lengthens_no_change(at, forward, ttl) -> None:
    overlay = with_edit(Overlay(), Edit("drain", "a"), until=at + ttl, at=at)
    now = at + forward
    after = overlay.after_restart(now)
    left = (after.changes[0].until_unix_s or 0.0) - now
    assert left <= ttl * (1 + 1e-9) + 1e-6
    if forward >= 0:
        assert after == overlay
    again = after.after_restart(now + 1.0)  # a start soon after counts those seconds once
    assert again == after


def test_a_move_and_other_changes_of_a_tenant_are_independent() -> None:
    base = replace(BASE, pools=(PoolSpec("main"), PoolSpec("gold")))
    moved = with_edit(Overlay(), edits.move_edit(InForce(base), "a", "gold"), until=50.0)
    both = with_edit(moved, edits.tenant_edit(moved.on(base), "a", {"weight": "2"}))
    both = with_edit(both, edits.drain_edit(both.on(base), "a"))
    assert both.on(base).pool_of("a") == "gold"
    after = both.expired(60.0)[0].on(base)
    assert (after.pool_of("a"), after.draining) == ("main", {"a"})
    assert after.settings.tenant("a").weight == 2.0  # type: ignore[union-attr]


def test_a_move_to_a_pool_that_is_gone_from_the_file_does_nothing() -> None:
    base = replace(BASE, pools=(PoolSpec("main"), PoolSpec("gold")))
    moved = with_edit(Overlay(), edits.move_edit(InForce(base), "a", "gold"))
    assert moved.on(BASE) == InForce(BASE)


def test_an_act_that_changes_nothing_for_good_moves_no_version() -> None:
    assert Overlay().with_note("aborted", 0.0, "op", "").version == Overlay().version


def test_the_past_is_forgotten_from_its_end_and_what_is_in_force_never() -> None:
    overlay = with_edit(Overlay(), Edit("drain", "a"))
    for i in range(KEPT + 50):
        overlay = overlay.with_note(f"note {i}", 0.0, "op", "")
    assert len(overlay.changes) == KEPT + 1
    assert overlay.changes[0].in_force
    assert overlay.changes[-1].what == f"note {KEPT + 49}"


def test_there_is_an_end_to_changes_in_force() -> None:
    overlay = Overlay(changes=())
    change = with_edit(overlay, Edit("drain", "a")).changes[0]
    full = Overlay(1, tuple(replace(change, number=i) for i in range(MOST_IN_FORCE)))
    with pytest.raises(ChangeRefused, match="undo some"):
        with_edit(full, Edit("drain", "b"))


# -- the settings file, read again


def test_a_limit_that_a_new_file_leaves_out_is_named() -> None:
    new = replace(BASE, tenants=(replace(BASE.tenants[0], rpm=None, tpm=None), *BASE.tenants[1:]))
    assert lifted(BASE, new) == ["rpm = 100 of tenant 'a'", "tpm = 9000 of tenant 'a'"]
    assert lifted(new, BASE) == []
    assert lifted(BASE, replace(BASE, tenants=BASE.tenants[1:])) == []  # gone, and so no caller


def test_what_only_a_restart_can_change_stays_as_it_is_and_is_named() -> None:
    new = replace(
        BASE,
        dtype="float32",
        policy="fcfs",
        limits=replace(BASE.limits, slots=2),
        tenants=(
            replace(BASE.tenants[0], rpm=5, rpm_burst=None, share_by="key", slo=Slo(ttft_s=1.0)),
            *BASE.tenants[1:],
            Tenant("new", slo=Slo(ttft_s=1.0)),
        ),
    )
    live, waits = live_part(BASE, new)
    assert waits == [
        "dtype", "limits", "share_by of tenant 'a'", "slo of tenant 'a'",
    ]  # fmt: skip
    assert (live.limits, live.dtype, live.policy) == (BASE.limits, BASE.dtype, "fcfs")
    assert live.tenants[0].share_by == "none"
    assert live.tenants[0].rpm == 5


def test_differences_name_no_key() -> None:
    digest = "ab" * 32
    new = replace(
        BASE,
        tenants=(replace(BASE.tenants[0], key_sha256=(digest,), weight=2.0), *BASE.tenants[1:]),
    )
    lines = differences(BASE, new)
    assert lines == ["tenant 'a': weight 1 -> 2, 1 keys instead of 0"]
    assert digest not in "".join(lines)


# -- the file that keeps it


def test_changes_outlive_a_restart_until_their_time_is_over(tmp_path: Path) -> None:
    kept = OverlayFile(tmp_path / "store" / "operator.json")
    assert kept.read() == Overlay()
    overlay = with_edit(Overlay(), Edit("drain", "a"), until=50.0)
    overlay = with_edit(overlay, Edit("policy", "fcfs"))
    kept.write(overlay)
    assert kept.path.stat().st_mode & 0o777 == 0o600
    assert read_overlay(kept, 49.0) == (overlay, (), "")
    later, over, trouble = read_overlay(kept, 50.0)
    assert (over, trouble) == (overlay.changes[:1], "")
    assert later.on(BASE) == InForce(BASE.with_policy("fcfs"))


def test_a_worker_is_started_with_what_is_in_force(tmp_path: Path) -> None:
    kept = OverlayFile(tmp_path / "operator.json")
    assert with_changes(BASE, str(kept.path), 10.0) == with_changes(BASE, "", 10.0) == BASE
    overlay = with_edit(Overlay(), Edit("policy", "fcfs"))
    overlay = with_edit(overlay, Edit("drain", "a"), until=50.0)
    kept.write(overlay)
    drained = replace(BASE.tenants[0], concurrency=0)
    both = replace(BASE, policy="fcfs", tenants=(drained, *BASE.tenants[1:]))
    assert with_changes(BASE, str(kept.path), 49.0) == both
    assert with_changes(BASE, str(kept.path), 51.0) == BASE.with_policy("fcfs")
    assert kept.read() == overlay  # it is the front's to change
    kept.path.write_text("{")
    assert with_changes(BASE, str(kept.path), 10.0) == BASE
    assert kept.path.read_text() == "{"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"format": 2}', '{"format": 1, "version": 1, "changes": [{}]}',
        '{"format": 1, "version": "x", "changes": []}', '{"format": 1, "version": 1}',
        '{"format": 1, "version": 1, "changes": 7}', "[" * 100_000,
        *(Overlay(1, (Change(1, 0.0, end, "a", "", "", Edit("drain", "a")),)).dump()  # type: ignore[arg-type]
          for end in (float("nan"), float("inf"), "later")),
    ],
)  # fmt: skip
def test_a_file_that_is_no_overlay_is_said_and_moved_aside_not_guessed_at(
    tmp_path: Path, text: str
) -> None:
    kept = OverlayFile(tmp_path / "operator.json")
    kept.path.write_text(text)
    with pytest.raises(OverlayLost, match=r"operator\.json"):
        kept.read()
    overlay, over, trouble = read_overlay(kept, 0.0)
    assert (overlay, over) == (Overlay(), ())
    assert "not in force" in trouble
    assert (tmp_path / "operator.json.damaged").read_text() == text
    assert not kept.path.exists()


def test_a_kind_of_change_from_a_later_version_is_not_dropped_silently(tmp_path: Path) -> None:
    overlay = with_edit(Overlay(), Edit("teleport", "a"))
    kept = OverlayFile(tmp_path / "operator.json")
    kept.write(overlay)
    with pytest.raises(OverlayLost, match="teleport"):
        kept.read()


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder would be")
    kept = OverlayFile(tmp_path / "store" / "operator.json")
    with pytest.raises(OverlayLost, match="nothing was changed"):
        kept.write(Overlay())
