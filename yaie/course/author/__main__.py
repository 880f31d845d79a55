"""`python -m yaie.course.author`: notebooks as text, and what exercises are proved with."""

import sys

from yaie.course.author import notebooks, renumber, survivors, symptoms

COMMANDS = {"mutate": survivors.main, "symptoms": symptoms.main, "renumber": renumber.main}

if __name__ == "__main__":
    command, *which = sys.argv[1:] or [""]
    if command in COMMANDS:
        sys.exit(COMMANDS[command](which))
    sys.exit(notebooks.main(sys.argv[1:]))
