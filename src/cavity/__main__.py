"""`python -m cavity` is the `cavity` command."""

import sys

from .cli import main

sys.exit(main())
