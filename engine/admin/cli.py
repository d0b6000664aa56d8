"""`tenantscope admin`: an operator's acts on a running engine. Owns options and words.

Exit codes: 0 done, 1 an engine could not, or the version has moved on, 2 usage or a value that
cannot be, 3 nobody answers (trying again can help). stdout is data, stderr narration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engine.admin.cli_options import acting, connect

if TYPE_CHECKING:
    from engine.admin.words import Target


@click.group()
def admin() -> None:
    """Change a running engine: limits, weights, adapters, the policy; take it back.

    Every change reverts by itself (after an hour, or --ttl), is written down with who and why, and
    can be tried with --dry-run.

    \b
    For example:
      tenantscope admin tenant show
      tenantscope admin tenant set acme --rpm 60 --weight 0.5 --ttl 30m --reason "fan-out"
      tenantscope admin undo
    """


# -- tenants


@admin.group()
def tenant() -> None:
    """A tenant's limits, weight and tier; its pool; drain it, preempt its excess."""


@tenant.command("show")
@click.argument("name", required=False)
@connect
def show(name: str | None, addresses: tuple[str, ...], as_json: bool) -> None:
    """What holds for every tenant, or for one, and what is left of it.

    \b
      tenantscope admin tenant show acme --json
    """
    from engine.admin import words

    rows = []
    for address in words.addresses(addresses):
        state = words.look(address)
        mine = [words.tenant(state, t) for t in state.tenants if name in (None, t.tenant)]
        if name is not None and not mine:
            raise click.UsageError(words.unknown(name, state))
        rows += mine
        words.narrate(state)
    words.out_rows(rows, words.TENANT_COLUMNS, as_json)


@tenant.command("set")
@click.argument("name")
@click.option("--rpm", metavar="N", help="Requests a minute; 0 = blocked, none = no limit.")
@click.option("--tpm", metavar="N", help="Tokens a minute; 0 = blocked, none = no limit.")
@click.option("--concurrency", metavar="N", help="Under way at once; 0 = blocked, none = no limit.")
@click.option("--weight", metavar="X", help="Its share against the others'.")
@click.option("--tier", metavar="TIER", help="normal, low, lowest or a number; lower goes first.")
@acting
def set_(target: Target, name: str, **values: str | None) -> None:
    """Change a tenant's limits, weight or tier. What is under way goes on.

    \b
      tenantscope admin tenant set acme --rpm 60 --tpm 20000 --ttl 30m --reason "fan-out"
    """
    from telemetry.proto import tenantscope_pb2 as pb

    given = {k: v for k, v in values.items() if v is not None}
    target.act("SetTenant", pb.SetTenantRequest(act=target.said, tenant=name, values=given))


def _on_tenant(method: str, name: str, target: Target) -> None:
    from telemetry.proto import tenantscope_pb2 as pb

    target.act(method, pb.AdminTenantRequest(act=target.said, tenant=name))


@tenant.command()
@click.argument("name")
@acting
def drain(target: Target, name: str) -> None:
    """Let nothing new of a tenant in; what it has under way ends by itself.

    \b
      tenantscope admin tenant drain acme --ttl 10m
    """
    _on_tenant("DrainTenant", name, target)


@tenant.command()
@click.argument("name")
@acting
def resume(target: Target, name: str) -> None:
    """End a drain.

    \b
      tenantscope admin tenant resume acme
    """
    _on_tenant("ResumeTenant", name, target)


@tenant.command()
@click.argument("name")
@click.option("--pool", required=True, metavar="POOL", help="Whose workers serve it from now on.")
@acting
def move(target: Target, name: str, pool: str) -> None:
    """Have another pool serve a tenant: what comes goes there, what is under way ends where it is.

    Its limits and what is left of them go with it.

    \b
      tenantscope admin tenant move acme --pool gold --ttl 4h --reason "launch day"
    """
    from telemetry.proto import tenantscope_pb2 as pb

    target.act("MoveTenant", pb.AdminMoveRequest(act=target.said, tenant=name, pool=pool))


@tenant.command()
@click.argument("name")
@acting
def preempt(target: Target, name: str) -> None:
    """Put a tenant's running requests above its fair share back into the queue, once.

    \b
      tenantscope admin tenant preempt acme --dry-run
    """
    _on_tenant("PreemptTenant", name, target)


# -- adapters


@admin.group()
def adapter() -> None:
    """Adapters: load, unload, read again, pin."""


def _on_adapter(
    method: str, name: str, target: Target, folder: str = "", tenants: tuple[str, ...] = ()
) -> None:
    from telemetry.proto import tenantscope_pb2 as pb

    request = pb.AdminAdapterRequest(act=target.said, adapter=name, folder=folder, tenants=tenants)
    target.act(method, request)


@adapter.command("list")
@connect
def list_adapters(addresses: tuple[str, ...], as_json: bool) -> None:
    """The adapters, where they are and who uses them.

    \b
      tenantscope admin adapter list
    """
    from engine.admin import words

    rows = []
    for address in words.addresses(addresses):
        state = words.look(address)
        rows += [words.adapter(state, a) for a in state.adapters]
        words.narrate(state)
    words.out_rows(rows, words.ADAPTER_COLUMNS, as_json)


@adapter.command()
@click.argument("name")
@click.option("--folder", default="", metavar="DIR", help="Of a new one, as the engine sees it.")
@click.option("--tenant", "tenants", multiple=True, help="Who may name a new one; several times.")
@acting
def load(target: Target, name: str, folder: str, tenants: tuple[str, ...]) -> None:
    """Serve an adapter: a new one, or one that was unloaded or left out.

    \b
      tenantscope admin adapter load acme-v2 --folder adapters/acme-v2 --tenant acme
    """
    _on_adapter("LoadAdapter", name, target, folder, tenants)


@adapter.command()
@click.argument("name")
@acting
def unload(target: Target, name: str) -> None:
    """Let nobody name an adapter; requests that use it end, then it leaves.

    \b
      tenantscope admin adapter unload acme-v1 --permanent --reason "replaced"
    """
    _on_adapter("UnloadAdapter", name, target)


@adapter.command()
@click.argument("name")
@acting
def reload(target: Target, name: str) -> None:
    """Read an adapter's folder again. Requests that use the old content end with it.

    \b
      tenantscope admin adapter reload acme-v2
    """
    _on_adapter("ReloadAdapter", name, target)


@adapter.command()
@click.argument("name")
@acting
def pin(target: Target, name: str) -> None:
    """Keep an adapter on the device, used or not.

    \b
      tenantscope admin adapter pin acme-v2 --ttl 4h
    """
    _on_adapter("PinAdapter", name, target)


@adapter.command()
@click.argument("name")
@acting
def unpin(target: Target, name: str) -> None:
    """End a pin.

    \b
      tenantscope admin adapter unpin acme-v2
    """
    _on_adapter("UnpinAdapter", name, target)


# -- the rest


@admin.group()
def request() -> None:
    """One request."""


@request.command()
@click.argument("request_id")
@acting
def abort(target: Target, request_id: str) -> None:
    """End a request now; what it gave is charged.

    \b
      tenantscope admin request abort cmpl-1f3a...
    """
    from telemetry.proto import tenantscope_pb2 as pb

    target.act("AbortRequest", pb.AdminAbortRequest(act=target.said, request_id=request_id))


@admin.group()
def policy() -> None:
    """Who goes first."""


@policy.command("set")
@click.argument("policy")
@acting
def set_policy(target: Target, policy: str) -> None:
    """Put another policy in force from the next step on. Counters go on.

    \b
      tenantscope admin policy set vtc
    """
    from telemetry.proto import tenantscope_pb2 as pb

    target.act("SetPolicy", pb.AdminPolicyRequest(act=target.said, policy=policy))


@admin.group("config")
def config() -> None:
    """The settings file of the engine."""


@config.command("reload")
@click.option("--allow-lifts", is_flag=True, help="Limits that the file leaves out are to go.")
@acting
def reload_config(target: Target, allow_lifts: bool) -> None:
    """Read the settings file again; operators' changes stay on top until they end.

    \b
      tenantscope admin config reload --dry-run
    """
    from telemetry.proto import tenantscope_pb2 as pb

    target.act("ReloadConfig", pb.AdminReloadRequest(act=target.said, allow_lifts=allow_lifts))


@admin.command()
@connect
def workers(addresses: tuple[str, ...], as_json: bool) -> None:
    """The worker processes: which answer, what they have, who is yet to be told what is in force.

    \b
      tenantscope admin workers
    """
    from engine.admin import words

    rows = []
    for address in words.addresses(addresses):
        state = words.look(address)
        rows += [words.worker(state, w) for w in state.workers]
        words.narrate(state)
    words.out_rows(rows, words.WORKER_COLUMNS, as_json)


@admin.command()
@acting
def undo(target: Target) -> None:
    """Take back the last change that is in force, whoever made it.

    \b
      tenantscope admin undo
    """
    from telemetry.proto import tenantscope_pb2 as pb

    target.act("Undo", pb.AdminUndoRequest(act=target.said))


@admin.command()
@click.option("--all", "every", is_flag=True, help="Also what is over, undone or was done once.")
@connect
def changes(every: bool, addresses: tuple[str, ...], as_json: bool) -> None:
    """What operators have changed: what is in force, until when, by whom and why.

    \b
      tenantscope admin changes --all
    """
    from engine.admin import words

    rows = []
    for address in words.addresses(addresses):
        state = words.look(address)
        rows += [words.change(state, c) for c in state.changes if every or c.state == "in force"]
        words.narrate(state)
    words.out_rows(rows, words.CHANGE_COLUMNS, as_json)
    if not rows and not as_json:
        click.echo("no change is in force", err=True)
