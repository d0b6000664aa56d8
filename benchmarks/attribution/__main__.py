"""`python -m benchmarks.attribution`."""

from benchmarks.attribution.run import main

raise SystemExit(main())
