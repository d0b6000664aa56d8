"""How the compute threads wait for each other. To be called before torch is imported.

A step is some two thousand short parallel regions. libgomp's threads spin at the end of each for
up to tens of milliseconds before they sleep: fine on an idle machine, ruinous beside any other
busy process, because the spinning thread holds the very core its partner needs. Measured with
SmolLM2-135M on two cores beside one busy process: 1,200 ms a step of one row by default, 44 ms
with the spin bounded; alone on the machine the bound costs nothing that could be measured.
(OMP_WAIT_POLICY=PASSIVE is no remedy: it sleeps at once and costs 1.6 to 2.2 times.)
"""

from __future__ import annotations

import os

SPIN_COUNT = "500"


def bound_spinning() -> None:
    """Bound the spin unless the operator has chosen; no effect once libgomp is loaded."""
    if "GOMP_SPINCOUNT" not in os.environ and "OMP_WAIT_POLICY" not in os.environ:
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
