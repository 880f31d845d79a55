"""`python -m yaie.course.author`: see `yaie.course.author.notebooks`."""

from __future__ import annotations

import sys

from yaie.course.author.notebooks import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
