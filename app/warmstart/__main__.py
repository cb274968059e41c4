"""`python -m warmstart`."""

from warmstart.cli import main

raise SystemExit(main())
