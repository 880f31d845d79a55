"""Reads ncu's compute throughput as arithmetic."""

from yaie.course.lessons.bottleneck import CORES, MEMORY, USED, WAITS

EXPECT = "`compute` is no part"


def limited_by(metrics):
    memory = [part for part in MEMORY if metrics[part] >= USED][:1]
    cores = [part for part in CORES if metrics[part] >= USED]
    if metrics["compute"] >= USED:
        return "compute"
    if memory or cores:
        return max(memory + cores, key=lambda part: metrics[part])
    if metrics["waves"] < 1:
        return "grid"
    return max(WAITS, key=lambda reason: metrics[reason])
