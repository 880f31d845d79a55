"""`python -m yaie.course.author`: notebooks as text, and `mutate` for exercises."""

from __future__ import annotations

import sys

from yaie.course.author import notebooks, survivors

if __name__ == "__main__":
    if sys.argv[1:2] == ["mutate"]:
        sys.exit(survivors.main(sys.argv[2:] or ["all"]))
    sys.exit(notebooks.main(sys.argv[1:]))
