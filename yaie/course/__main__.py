"""`python -m yaie.course build [--check]`, for work on the course."""

import argparse
import sys
from pathlib import Path

from yaie.course.author import build
from yaie.course.core import verdict
from yaie.course.core.manifest import find


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m yaie.course")
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="write exercises/ and solutions/")
    building.add_argument("--check", action="store_true", help="only say what differs; exit 1")
    judging = commands.add_parser("judge", help="check one file, write the verdict as JSON")
    judging.add_argument("id")
    judging.add_argument("path", type=Path)
    judging.add_argument("seconds", type=float)
    judging.add_argument("answer", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "judge":
        exercise = find(arguments.id)
        verdict.judge_for_parent(exercise, arguments.path, arguments.seconds, arguments.answer)
        return 0
    if not arguments.check:
        print("\n".join(build.write() or ["exercises/ and solutions/ are as the reference is"]))
        return 0
    problems = build.differences()
    if problems:
        print("\n".join(problems))
        print(
            "exercises/ and solutions/ are generated: run `python -m yaie.course build`, then\n"
            "`git add exercises solutions`. Of an exercise that you edited, the staged file counts."
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
