"""What a log lacks, and which findings abstain for it. Pure functions of an account."""

from __future__ import annotations

from dataclasses import dataclass

from postmortem.importers.logged import Account


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that rows of the engine have and these lack. `rows` = how many lack it; `findings`
    are those that cannot be judged without it."""

    what: str
    rows: int
    findings: tuple[str, ...]
    consequence: str


# What no request log holds, whoever wrote it.
_NEVER: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("waits by reason, and behind whom", ("holder",), "nobody is named for another's wait"),
    (
        "steps and their expected length",
        ("engine", "frozen"),
        "a slow or frozen engine is not seen",
    ),
    ("adapter loads and evictions", ("adapter_thrash",), "thrashing is not seen"),
    ("KV and pool bytes", (), "pressure on the pool is not seen"),
    ("policy changes and restarts", ("change",), "a change can be neither found nor excluded"),
)
_COLUMNS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "tenant": ("tenant", ("hurt", "holder", "everyone"), "all rows are one tenant, `unknown`"),
    "adapter": ("adapter", (), "no usage by adapter"),
    "prompt_tokens": ("prompt tokens", ("everyone",), "no token shares"),
    "output_tokens": ("output tokens", (), "service is that of prompts alone"),
    "max_tokens": ("tokens asked for", ("everyone",), "offered tokens are absent"),
    "cached_tokens": ("cached tokens", (), "a whole prompt counts as computed"),
    "ttft_s": ("time to first token", ("hurt",), "no TTFT, no misses"),
    "latency_s": ("time to the end", (), "no TPOT; tokens fall in the minute of the arrival"),
    "outcome": ("outcome", (), "a row with an answer counts as finished"),
    "is_retry": ("retries", (), "a retry storm is not seen as one"),
}
# What follows where some rows have it.
_SOME = {"tenant": "these rows are one tenant, `unknown`"}


def lacks_of(account: Account, *, slo: bool) -> tuple[Lack, ...]:
    """In the table's order: columns that rows lack, then what no request log holds."""
    out = [
        Lack(what, missing, findings, _SOME.get(column, said) if missing < account.kept else said)
        for column, (what, findings, said) in _COLUMNS.items()
        if (missing := account.kept - account.told[column])
    ]
    if not slo:
        out.append(
            Lack("a promise (--slo-ttft)", account.kept, ("hurt",), "no target can be missed")
        )
    out += [Lack(what, account.kept, findings, said) for what, findings, said in _NEVER]
    return tuple(out)


def table(lacks: tuple[Lack, ...], kept: int) -> list[str]:
    """For people: what is lacking, in how many rows, what abstains, what follows."""
    lines = [("the log lacks", "rows", "abstain", "so")]
    for lack in lacks:
        rows = "all" if lack.rows == kept else f"{lack.rows:,}"
        lines.append((lack.what, rows, ", ".join(lack.findings) or "-", lack.consequence))
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[3]]).rstrip()
        for line in lines
    ]
