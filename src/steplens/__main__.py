"""``python -m steplens`` is the command ``steplens``."""

import sys

from steplens.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
