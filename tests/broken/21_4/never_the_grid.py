"""Never looks at the grid."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "most of the GPU has no warps"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    return max(WAITS, key=lambda reason: metrics[reason])
