"""The loader of a worker with ranks: its end is theirs. Owns nothing else."""

from __future__ import annotations

from engine.loading import Copies, LoaderThread
from engine.parallel.runner import TensorParallelRunner


class RanksLoader(LoaderThread):
    """Moves shares of adapters to all ranks; who closes it, last of all, ends them."""

    def __init__(self, runner: TensorParallelRunner, copies: Copies) -> None:
        super().__init__(runner, copies)
        self._runner = runner

    def close(self) -> None:
        super().close()
        self._runner.close()
