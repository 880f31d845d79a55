"""`python -m yaie.course.author symptoms 19.3`: write how each mistake first shows.

An exercise whose mistakes are compiled keeps their symptoms in a file, so that only those with the
learner's are compiled for a diagnosis. `tests/test_course_mistakes.py` proves the file.
"""

import json
from collections.abc import Sequence

from yaie.course.core.judge import all_symptoms, symptoms_file
from yaie.course.core.manifest import select


def main(which: Sequence[str]) -> int:
    """Write the symptoms of CUDA exercises, and of those others that have a file already."""
    for exercise in [e for name in which or ["all"] for e in select(name)]:
        path = symptoms_file(exercise)
        if exercise.is_cuda or path.exists():
            found = {
                name: json.dumps(seen, ensure_ascii=False) for name, seen in all_symptoms(exercise)
            }
            lines = ",\n".join(f" {json.dumps(name)}: {seen}" for name, seen in found.items())
            path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
            print(f"{exercise.id}: {len(found)} symptoms")
    return 0
