"""The console's door against the engine's own operator's service: what one says the other reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trustme

from console.act.acts import BY_NAME, form_of
from console.act.door import AdminDoor
from console.act.form import Field, Form, Stage, answered, orders_of
from console.act.hand import DoorShut
from console.act.values import Looked, No
from engine.admin.listen import AdminListen
from telemetry.service.access import Access
from telemetry.service.roles import digest, new_token
from tests.engine.admin.test_admin_door import free_port, opened
from tests.engine.serving.serving_fakes import short_folder


@pytest.fixture(scope="module")
def door():
    with short_folder() as folder:
        address = f"unix:{folder / 'admin.sock'}"
        with opened(AdminListen(address), folder):
            made = AdminDoor(address)
            yield made
            made.close()


def look(door: AdminDoor) -> Looked:
    return Looked((door.look(),))


def filled(form: Form | str, **typed: str) -> Form:
    assert isinstance(form, Form), form
    fields: tuple[Field, ...] = tuple(
        replace(f, typed=typed.get(f.key, f.typed)) for f in form.fields
    )
    return replace(form, fields=fields, stage=Stage.TRYING)


def sent(door: AdminDoor, form: Form, *, dry_run: bool) -> Form:
    answers = [door.act(o) for o in orders_of(form, "me", dry_run=dry_run)]
    return answered(form, answers, look(door))


def test_a_cap_is_tried_done_shown_and_undone(door):
    before = look(door)
    form = filled(form_of(BY_NAME["cap"], "alice", before), rpm="60", reason="fan-out")
    assert next(f.now for f in form.fields if f.key == "rpm") == "100"
    tried = sent(door, form, dry_run=True)
    assert tried.stage is Stage.TRIED, tried
    assert "rpm 100 -> 60" in tried.answers[0].effect
    assert look(door).states[0].tenant("alice").rpm == 100
    done = sent(door, replace(tried, stage=Stage.DOING), dry_run=False)
    assert (done.stage, done.answers[0].ok) == (Stage.DONE, True)
    [state] = look(door).states
    [change] = state.in_force
    assert (change.who, change.why, state.tenant("alice").rpm) == ("me", "fan-out", 60)
    assert change.until - change.at == pytest.approx(900.0)
    undo = form_of(BY_NAME["undo"], None, look(door))
    assert isinstance(undo, Form)
    assert "rpm 100 -> 60" in undo.expected
    undone = sent(door, replace(undo, stage=Stage.DOING), dry_run=False)
    assert undone.answers[0].ok
    assert look(door).states[0].tenant("alice").rpm == 100


def test_a_version_that_moved_is_told_with_what_was_changed(door):
    old = filled(form_of(BY_NAME["cap"], "alice", look(door)), rpm="50")
    other = filled(form_of(BY_NAME["drain"], "-b", look(door)))
    assert sent(door, replace(other, stage=Stage.DOING), dry_run=False).answers[0].ok
    moved = sent(door, old, dry_run=True)
    assert moved.stage is Stage.MOVED
    assert [a.no for a in moved.answers] == [No.MOVED]
    assert any("-b" in c.what and c.state == "in force" for c in moved.meanwhile)
    again = sent(door, replace(moved, stage=Stage.TRYING), dry_run=True)
    assert again.stage is Stage.TRIED
    resume = filled(form_of(BY_NAME["drain"], "-b", look(door)))
    assert resume.method == "ResumeTenant"
    assert sent(door, replace(resume, stage=Stage.DOING), dry_run=False).answers[0].ok


@pytest.mark.parametrize("name", ["weight", "preempt"])
def test_the_other_acts_are_understood(door, name):
    typed = {"weight": "2"} if name == "weight" else {}
    form = filled(form_of(BY_NAME[name], "[red]x[/] y", look(door)), **typed)
    assert sent(door, form, dry_run=True).stage is Stage.TRIED


def test_what_the_engine_refuses_comes_back_in_its_words(door):
    form = filled(form_of(BY_NAME["weight"], "alice", look(door)), weight="1000000000")
    back = sent(door, form, dry_run=True)
    assert back.stage is Stage.TYPING
    assert back.trouble.startswith("weight '1000000000': expected")


def test_over_tcp_it_is_a_token_that_opens_the_door_and_is_written_down():
    with short_folder() as folder:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        cert = authority.issue_cert("localhost", "127.0.0.1")
        cert.private_key_pem.write_to_path(folder / "key.pem")
        cert.cert_chain_pems[0].write_to_path(folder / "cert.pem")
        tokens = {role: new_token() for role in ("operator", "viewer")}
        (folder / "tokens.toml").write_text("".join(
            f'[[token]]\nsha256 = "{digest(t)}"\nrole = "{role}"\nnote = "ours"\n'
            for role, t in tokens.items()
        ))  # fmt: skip
        names = [str(folder / n) for n in ("cert.pem", "key.pem", "tokens.toml")]
        address = f"127.0.0.1:{free_port()}"
        with opened(AdminListen(address, *names), folder):
            viewer = AdminDoor(address, Access(token=tokens["viewer"], ca=folder / "ca.pem"))
            with pytest.raises(DoorShut, match="token"):
                viewer.look()
            viewer.close()
            door = AdminDoor(address, Access(token=tokens["operator"], ca=folder / "ca.pem"))
            form = filled(form_of(BY_NAME["cap"], "alice", look(door)), rpm="60")
            assert sent(door, replace(form, stage=Stage.DOING), dry_run=False).answers[0].ok
            assert look(door).states[0].in_force[0].who == "me (token ours)"
            door.close()
