"""Prompts of an exact length for a workload's arrivals, cut from a page of plain English.

The page is this project's own. A prompt depends on the arrival's seed alone, so that the same
arrivals send the same tokens under every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

PAGE = """
A pool of machines is shared by people who never meet. Each of them sends work when it suits them,
and each expects an answer as quick as yesterday's. On most days the pool is half empty and nobody
thinks about the others. Then, one afternoon, somebody starts a job that reads a whole library of
long documents at once. Nothing is broken. The machines are busy, the fans are loud, the averages
look healthy, and the throughput is better than ever. Yet in three other offices the same small
question that took a moment now takes ten seconds, and nobody there can see why.
The harbour master kept two books. In the first he wrote which ship lay at which berth and for how
long. In the second he wrote which ship had waited outside, since when, and whose hull was in the
place it wanted. The first book was praised by every visitor. The second one settled every quarrel.
When the grain fleet came in early one autumn and filled the quays for a week, the captains of the
fishing boats came to complain about the weather. He opened the second book and read to them what
the tide had to do with it, which was nothing, and what the grain fleet had to do with it, which
was nearly everything, and then he moved two ships and the queue was gone by the evening.
A queue has a shape. It grows from the front when the server is slow, and from the back when too
many arrive. From the outside both look the same: people stand and wait. To tell one from the other
it is enough to know how long a piece of work should take and how long it did take. If the two
agree, the server is innocent, and the answer is to be found among those who stand in the line.
"""


def page_tokens(encode: Callable[[str], Sequence[int]]) -> tuple[int, ...]:
    """The page in the model's tokens; encode it once and cut all prompts from it."""
    return tuple(encode(PAGE.strip()))


def prompt(page: Sequence[int], seed: int, length: int) -> list[int]:
    """`length` tokens of the page from a place that depends on `seed`, round and round."""
    start = seed % len(page)
    return [page[(start + i) % len(page)] for i in range(length)]
