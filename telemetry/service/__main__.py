"""`python -m telemetry.service`: the store's process."""

from __future__ import annotations

import sys

from telemetry.service.process import main

if __name__ == "__main__":
    sys.exit(main())
