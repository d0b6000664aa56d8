"""A recorder without a device: it keeps a call and calls it again, over the same memory, as a graph
would; into the tensor that it first answered with."""

from __future__ import annotations


class Again:
    def __init__(self):
        self.recorded = self.replayed = 0

    def record(self, call):
        self.recorded += 1
        mine = self

        class Replayed:
            out = call().clone()

            def __call__(self):
                mine.replayed += 1
                self.out.fill_(float("nan"))
                self.out.copy_(call())

        return Replayed()
