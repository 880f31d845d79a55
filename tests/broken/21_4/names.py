"""Returns what is to be written, not the key."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, NAMES, USED, WAITS

EXPECT = "Return the key"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return NAMES[max(memory + cores, key=lambda part: metrics[part])]
    if metrics["waves"] < 1:
        return NAMES["grid"]
    return NAMES[max(WAITS, key=lambda reason: metrics[reason])]
