"""`python -m cavity` is the `cavity` command."""

import sys

from cavity.cli import main

sys.exit(main())
