"""The one kind of array that the books are kept in: float64, by the ledger's index of tenants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
