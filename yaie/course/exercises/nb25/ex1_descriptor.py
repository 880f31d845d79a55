"""25.1: the fields of a descriptor one by one, then those of the four steps of a tile."""

from collections.abc import Iterator
from typing import Any

from yaie.course.core.observe import Case, Observer

# First bit and width, what stands there.
FIELDS = {
    "bits 0 to 13, the address / 16": (0, 14),
    "the number in bits 14 and 15": (14, 2),
    "bits 16 to 29, the leading bytes / 16": (16, 14),
    "the number in bits 30 and 31": (30, 2),
    "bits 32 to 45, the stride bytes / 16": (32, 14),
    "the number in bits 46 to 61": (46, 16),
    "bits 62 and 63, the mode": (62, 2),
}
ADDRESS, LEADING, STRIDE, MODE = (name for name in FIELDS if "," in name)
CALLS = (  # address, leading bytes, stride bytes, span, and what the fields must hold
    (4096, 8192, 1024, 128, (256, 512, 64, 1)),
    (0, 0, 1024, 64, (0, 0, 64, 2)),
    (160, 48, 16, 32, (10, 3, 1, 3)),
    (231_424, 128, 256, 0, (14_464, 8, 16, 0)),
    (2**18 + 32, 2**18 + 16, 2**18 + 48, 128, (2, 1, 3, 1)),
)
FITS = "What does not fit into the 14 bits of a field is cut off, and must not reach other fields."
TILES = ((1024, 17_408), (0, 8192))  # addresses of the tiles of a and b


def cases() -> Iterator[Case]:
    for *given, wanted in CALLS:
        yield Case(f"matrix_descriptor({', '.join(map(str, given))})", given=given, wanted=wanted)
    for a_tile, b_tile in TILES:
        for step in range(4):
            call = f"step_descriptors({a_tile}, {b_tile}, {step})"
            yield Case(call, given=(a_tile, b_tile, step), wanted=None)


def observe(learner: Any, case: Case, see: Observer) -> None:
    if case.wanted:
        with see.call(str(case)):
            bits = learner.matrix_descriptor(*case.given)
        see_fields(see, bits, dict(zip((ADDRESS, LEADING, STRIDE, MODE), case.wanted, strict=True)))
        return
    a_tile, b_tile, step = case.given
    with see.call(str(case)):
        of_a, of_b = learner.step_descriptors(*case.given)
    # Of element k = 16 × step: in row 0 of a, and in column 0 of b.
    first_of_a, first_of_b = a_tile + 2 * 16 * step, b_tile + 2 * 64 * 16 * step
    along = "A row of a is a line: 16 values of k further on are 32 bytes."
    down = "A line of b has one value of k: 16 values of k further on are 16 lines."
    eight = "From 8 lines to the next 8 are 1,024 bytes."
    parts = "The next 64 columns begin after all 64 lines of this part, 8,192 bytes further on."
    see_fields(
        see, of_a, {ADDRESS: first_of_a // 16, STRIDE: 64, MODE: 1}, "of a: ",
        {ADDRESS: along, STRIDE: eight}, unused=LEADING,
    )  # fmt: skip
    see_fields(
        see, of_b, {ADDRESS: first_of_b // 16, LEADING: 512, STRIDE: 64, MODE: 1}, "of b: ",
        {ADDRESS: down, LEADING: parts, STRIDE: eight},
    )  # fmt: skip


def see_fields(
    see: Observer, bits: Any, wanted: dict, of: str = "", because: dict | None = None,
    unused: str = "",
) -> None:  # fmt: skip
    """Note each field of a descriptor; what is not wanted is 0, and `unused` may be anything."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits < 2**64:
        problem = f"is {bits!r:.60}, expected a number of at most 64 bits"
        see.note(f"{of}the descriptor", bits, problem, FITS)
        return
    for name, (first, width) in FIELDS.items():
        if name != unused:
            field = bits >> first & (1 << width) - 1
            see.equal(f"{of}{name}", field, wanted.get(name, 0), (because or {}).get(name, FITS))


def draw(learner: Any) -> Any:
    """The learner's descriptors of the four steps."""
    from functools import partial

    from yaie.course.viz.film import compose
    from yaie.course.viz.wgmma import draw_descriptor

    steps = [learner.step_descriptors(*TILES[0], step) for step in range(4)]
    titles = [(f"{step}", f"step {step}, {of}") for step in (0, 1) for of in "ab"]
    drawn = [partial(draw_descriptor, bits) for pair in steps[:2] for bits in pair]
    return compose(drawn, titles)
