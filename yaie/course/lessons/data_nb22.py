"""The kept figures of notebook 22: how long each way to build took, and on which cards it runs."""

from functools import cache, partial

from yaie.build import nvcc
from yaie.course.core import paths
from yaie.course.lessons.ways import Way

kept = partial(paths.kept, "22_tools_h200")  # the record of `yaie.course.author.gpu.tools`

CARDS = {
    "V100 (7.0)": (7, 0),
    "T4 (7.5)": (7, 5),
    "A100 (8.0)": (8, 0),
    "RTX 4090 (8.9)": (8, 9),
    "H200 (9.0)": (9, 0),
    "B200 (10.0)": (10, 0),
}


@cache
def measured_ways() -> list[Way]:
    """The ways to build of notebook 22, with the seconds that they took there."""
    took = {row["way"]: row["seconds"] for row in kept()["builds"]["rows"]}
    built = frozenset(c for c in CARDS.values() if nvcc.runs_on(("7.5", "8.0", "9.0+PTX"), c))
    classic, both = "load_inline, classic", "load, two files: torch's headers in the .cpp only"
    lean, ahead = "yaie.jit.load", "ahead of time, 7.5; 8.0; 9.0+PTX"
    device = "NVRTC, in the process: torch.cuda._compile_kernel"
    # An extension's build is that of its two files; what was built is then only loaded.
    loaded = took["yaie.jit.load, kept from before"]
    return [
        Way("load_inline, classic", took[classic], took[classic], True),
        Way("yaie.jit.load", took[lean], took[lean], True),
        Way("NVRTC", took[device], took[device], False, launcher=False),
        Way("csrc/setup.py, ahead of time", took[ahead], loaded, False, cards=built),
        Way("CUDAExtension", took[both], loaded, False, operator=True, cards=built),
    ]
