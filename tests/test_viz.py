"""Pictures: pure, within their page, silent, and made of recorded state."""

from __future__ import annotations

import base64
import gc
import math
import re
import warnings
import weakref
from functools import cache, partial
from random import Random

import matplotlib
import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text

from yaie.course import viz
from yaie.course.lessons.trie import TokenTrie
from yaie.course.viz import page, style
from yaie.course.viz.tree_state import compare
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.radix import RadixTree

pytestmark = pytest.mark.filterwarnings("error")
AWKWARD = ["naïve 你好", "$x_1$ and $", "😀🫠", "a\nb\tc", "", " ", "\x00", "x" * 400]


# ---------------------------------------------------------------------------------- states


def radix_tree(num_prompts: int, block_size: int = 2) -> RadixTree:
    tree, random = RadixTree(block_size), Random(num_prompts)
    for i in range(num_prompts):
        prompt = random.choices(range(3), k=block_size * random.randrange(1, 10))
        tree.insert(prompt, list(range(100, 100 + len(prompt) // block_size)))
        tree.insert_request(f"request-{i}", prompt)
    return tree


def awkward_text(ids: list[int]) -> str:
    return " ".join(AWKWARD[token % len(AWKWARD)] for token in ids)


def pool_states() -> list:
    manager = KVCacheManager(num_blocks=12, block_size=4, num_heads=1, head_dim=2)
    states = [viz.snapshot_pool(manager)]
    manager.allocate_blocks("chat A", 10)
    states.append(viz.snapshot_pool(manager, cached=[0, 1]))
    manager.fork("chat A", "chat B")
    states.append(viz.snapshot_pool(manager))
    manager.append_tokens("chat B")
    states.append(viz.snapshot_pool(manager))
    manager.free_blocks("chat A")
    states.append(viz.snapshot_pool(manager))
    return states


def pool_state(num_blocks: int, num_requests: int, name: str = "request"):
    manager = KVCacheManager(num_blocks, block_size=4, num_heads=1, head_dim=1)
    for i in range(num_requests):
        manager.allocate_blocks(f"{name} {i}", 1 + 5 * i % 23)
    return viz.snapshot_pool(manager)


STEPS = [
    viz.Step((("a", "prefill", 8),), free_blocks=4),
    viz.Step((("a", "decode", 1), ("b", "prefill", 7)), free_blocks=0),
    viz.Step((("a", "decode", 1),), preempted=("b",), finished=("a",), free_blocks=3),
    viz.Step((("b", "prefill", 8), ("c", "idle", 0)), free_blocks=1),
]


def many_steps(num_requests: int) -> list[viz.Step]:
    ids = [f"request {i}" for i in range(num_requests)]
    return [
        viz.Step(
            tuple((name, "prefill" if i % 5 == 0 else "decode", 1 + i) for name in ids[: i + 1])
        )
        for i in range(2 * num_requests)
    ]


def sampling_state(vocab: int, num_tokens: int = 20):
    logits = [4.0 - 0.3 * i for i in range(vocab)]
    kept = [x if i < 3 else -math.inf for i, x in enumerate(logits)]
    filters = [
        viz.Filter("model", logits),
        viz.Filter("top-p 0.6", kept, top_p=0.6),
        viz.Filter("min-p 0.1", kept, min_p=0.1),
    ]
    return viz.snapshot_sampling(filters, awkward_text, num_tokens)


def causal(queries: int, keys: int) -> list[list[float]]:
    past = keys - queries
    return [[1 / (i + past + 1) * (j <= i + past) for j in range(keys)] for i in range(queries)]


TABLE = [[math.cos(p / 10**d) for d in range(4)] for p in range(16)]

PICTURES = {
    "empty tree": lambda: viz.draw_tree(viz.snapshot_tree(RadixTree())),
    "empty trie": lambda: viz.draw_tree(viz.snapshot_tree(TokenTrie())),
    "one node": lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(1))),
    "tree": lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(9), awkward_text)),
    "large tree": lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(60), awkward_text)),
    "narrow tree": lambda: viz.draw_tree(viz.snapshot_tree(radix_tree(20)), width=4.0),
    "one block": lambda: viz.draw_blocks(pool_state(1, 1)),
    "no tables": lambda: viz.draw_blocks(pool_state(5, 0)),
    "200 blocks": lambda: viz.draw_blocks(pool_state(200, 20)),
    "1000 blocks": lambda: viz.draw_blocks(
        pool_state(1000, 3, "a name that is much too long " * 3)
    ),
    "fragmentation": lambda: viz.draw_fragmentation(
        {"contiguous": [viz.Extent(0, 8, 3), viz.Extent(10, 4, 4, 1)], "none": []}, 20
    ),
    "paged": lambda: viz.draw_fragmentation({"paged": viz.pool_extents(pool_state(20, 4))}, 80),
    "no steps": lambda: viz.draw_schedule([]),
    "schedules": lambda: viz.draw_schedules({"one": STEPS, "two": STEPS[:1]}, 8, {"b": 1}),
    "30 requests": lambda: viz.draw_schedule(many_steps(30)),
    "sampling": lambda: viz.draw_sampling(sampling_state(60)),
    "three tokens": lambda: viz.draw_sampling(sampling_state(3)),
    "attention": lambda: viz.draw_attention(causal(8, 8), AWKWARD),
    "with a past": lambda: viz.draw_attention(causal(1, 5)),
    "large attention": lambda: viz.draw_attention(causal(40, 64)),
    "not a number": lambda: viz.draw_attention([[math.nan]]),
    "rotary": lambda: viz.draw_rotary(TABLE, TABLE),
    "small rotary": lambda: viz.draw_rotary([[1.0]], [[0.0]]),
    "growth": lambda: viz.draw_growth(
        {"FLOPs": {"none": [1, 4, 9], "cache": [1, 1, 1], "c": [1] * 3}}
    ),
    "log growth": lambda: viz.draw_growth({"a": {"x": [1, 10]}, "b": {"y": [5, 5]}}, log=True),
    "numbers": lambda: viz.draw_number_line([0.5, 1, 8], (8, 1), "numbers"),
    "heads": lambda: viz.draw_head_groups((9, 3), 46080),
    "128 heads": lambda: viz.draw_head_groups((128, 8)),
    "trace": lambda: viz.draw_trace(
        [viz.TraceRecord(name, 5 * i, 9, 3 * i, i % 2) for i, name in enumerate(AWKWARD)], 20
    ),
    "one request": lambda: viz.draw_trace([viz.TraceRecord("a", 0, 0)]),
    "150 requests": lambda: viz.draw_trace(
        [viz.TraceRecord(f"r{i}", i, 200 - i) for i in range(150)]
    ),
    "map": lambda: viz.draw_course_map(),
    "map of 03": lambda: viz.draw_course_map(3),
    "readme": viz.draw_readme_strip,
    "film strip": lambda: viz.film_strip(pool_states(), viz.draw_blocks, list("abcde")),
}


# ---------------------------------------------------------------------------------- every picture


@cache
def picture(name: str) -> page.Picture:
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_picture_is_drawn_inside_its_page_and_leaks_nothing(name):
    before = dict(matplotlib.rcParams)
    figure = picture(name)
    image, metadata = figure._repr_png_()
    assert image.startswith(b"\x89PNG")
    assert metadata == {"alt": figure.alt} and page.from_png(image).alt == figure.alt != ""
    assert plt.get_fignums() == []
    assert dict(matplotlib.rcParams) == before
    assert figure.get_size_inches()[0] <= style.WIDTH + 0.01
    width, height = figure.get_size_inches()
    drawn = figure.get_tightbbox()
    assert drawn.x0 > -0.02 and drawn.x1 < width + 0.02
    assert drawn.y0 > -0.02 and drawn.y1 < height + 0.02


@pytest.mark.parametrize("name", PICTURES)
def test_words_do_not_overlap(name):
    figure = picture(name)
    words = [text for ax in figure.axes for text in ax.texts if text.get_text().strip()]
    bounds = [text.get_window_extent() for text in words]
    for i, a in enumerate(bounds):
        for j, b in enumerate(bounds[:i]):
            across = min(a.x1, b.x1) - max(a.x0, b.x0)
            down = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert across <= 1 or down <= 2, (words[i].get_text(), words[j].get_text())


@pytest.mark.parametrize("name", ["tree", "schedules", "sampling", "readme"])
def test_the_same_state_gives_the_same_bytes(name):
    assert PICTURES[name]()._repr_png_() == picture(name)._repr_png_()


@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_a_tree_do_not_overlap(seed):
    tree = radix_tree(6 + 5 * seed)
    found = tree.match([0, 1] * 4)
    if found.length:
        tree.lock(found.node)
    before = viz.snapshot_tree(tree, awkward_text)
    tree.evict(5)
    figure = viz.draw_tree(viz.snapshot_tree(tree, awkward_text, matched=[0, 1]), before)
    boxes = [
        patch.get_window_extent()
        for patch in figure.findobj(FancyBboxPatch)
        if patch.get_zorder() == 2
    ]
    assert len(boxes) > 5
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a.x1 <= b.x0 or b.x1 <= a.x0 or a.y1 <= b.y0 or b.y1 <= a.y0


def test_every_exported_name_exists():
    for name in viz.__all__:
        assert getattr(viz, name) is not None
    with pytest.raises(AttributeError, match="no_such_picture"):
        _ = viz.no_such_picture


# ---------------------------------------------------------------------------------- states


def test_snapshots_do_not_change_with_what_they_record():
    tree = radix_tree(4)
    manager = KVCacheManager(8, 4, 1, 2)
    manager.allocate_blocks("a", 5)
    tree_state, pool = viz.snapshot_tree(tree), viz.snapshot_pool(manager)
    tree_copy, pool_copy = repr(tree_state), repr(pool)
    tree.insert_request("later", [2, 2, 2, 2])
    tree.lock(tree.match([2, 2]).node)
    tree.evict(3)
    manager.append_tokens("a", 9)
    manager.fork("a", "b")
    assert repr(tree_state) == tree_copy
    assert repr(pool) == pool_copy


def tags(tree, before) -> dict[str, str]:
    state, marks = compare(viz.snapshot_tree(tree), before)
    return {state.nodes[index].text: tag for index, tag in marks.tags.items()}


def test_changes_are_found():
    tree = RadixTree()
    before = viz.snapshot_tree(tree)
    tree.insert([1, 2, 3, 4])
    assert tags(tree, before) == {"1 2 3 4": "new"}
    before = viz.snapshot_tree(tree)
    tree.insert([1, 2, 5])
    assert tags(tree, before) == {"1 2": "split", "5": "new"}
    before = viz.snapshot_tree(tree)
    tree.evict(1)
    assert tags(tree, before) == {"its last 1 token": "evicted"}
    before = viz.snapshot_tree(tree)
    tree.evict(2)
    assert tags(tree, before) == {"3": "evicted", "5": "evicted"}
    assert tags(tree, viz.snapshot_tree(tree)) == {}


def test_a_match_inside_an_edge_is_marked_in_part():
    trie, tree = TokenTrie(), RadixTree()
    for each in (trie, tree):
        each.insert_request("a", [1, 2, 3, 4])
    _, marks = compare(viz.snapshot_tree(tree, matched=[1, 2, 3]), None)
    assert marks.matched == {0: 1.0, 1: 0.75}
    _, marks = compare(viz.snapshot_tree(trie, matched=[1, 2, 9]), None)
    assert marks.matched == {0: 1.0, 1: 1.0, 2: 1.0}


def test_namespaces_are_separate_roots():
    tree = RadixTree()
    tree.insert([1, 2], namespace="")
    tree.insert([1, 2], namespace="adapter")
    state = viz.snapshot_tree(tree, matched=[1, 2], namespace="adapter")
    _, marks = compare(state, None)
    assert [state.nodes[i].text for i in marks.matched] == ["adapter", "1 2"]


def test_a_trie_deeper_than_the_recursion_limit_is_drawn():
    trie = TokenTrie()
    trie.insert_request("long", range(1500))
    words = [text.get_text() for text in viz.draw_tree(viz.snapshot_tree(trie)).findobj(Text)]
    assert "1,501 nodes, 1,500 tokens" in words
    assert any("more nodes" in text for text in words)


def test_a_copied_block_is_pointed_out():
    states = pool_states()
    words = [text.get_text() for text in viz.draw_blocks(states[3], states[2]).findobj(Text)]
    assert "chat B: 2 copied to 3" in words


def test_cached_blocks_are_the_values_of_all_namespaces():
    tree = RadixTree(2)
    tree.insert([1, 2, 3, 4], [7, 8])
    tree.insert([1, 2], [9], namespace="adapter")
    assert sorted(viz.cached_blocks(tree)) == [7, 8, 9]


def test_requests_keep_their_colors_when_others_end():
    assert style.name_colors(["chat A", "chat B"]) == {"chat A": 0, "chat B": 1}
    assert style.name_colors(["chat B"]) == {"chat B": 1}
    assert len(set(style.name_colors(["r0", "a", "b 0", *"cdefgh"]).values())) == 9
    every = style.name_colors(["r3", "r9", "alice", "bob"])
    assert len({index % len(style.SERIES) for index in every.values()}) == 4


def test_sampling_state_adds_up():
    state = sampling_state(60)
    for stage in state.stages:
        assert sum(stage.probabilities) + stage.others == pytest.approx(1.0)
    assert [stage.num_kept for stage in state.stages] == [60, 3, 3]


def test_weight_on_a_future_key_is_outlined():
    def outlined(weights):
        figure = viz.draw_attention(weights)
        red = matplotlib.colors.to_rgba(style.VERMILION)
        return sum(patch.get_edgecolor() == red for patch in figure.findobj(Rectangle))

    assert outlined(causal(4, 4)) == 0
    assert outlined([[0.5, 0.5], [0.5, 0.5]]) == 1


@pytest.mark.parametrize("text", AWKWARD)
def test_any_text_has_glyphs(text):
    shown = style.printable(text)
    assert all(ord(character) in style._glyphs() for character in shown)
    for line in style.wrap(shown, 0.8, 3):
        assert style.text_width(line) <= 0.8


# ---------------------------------------------------------------------------------- viz.slider


def shown_by(slides) -> tuple[bytes, str]:
    """The bytes of the picture that a viz.slider shows, and its alternative text."""
    content, text = re.fullmatch(
        r'<img src=".*?base64,(.*?)" alt="(.*)">', slides.image.value
    ).groups()
    return base64.b64decode(content), text


def test_slider_changes_the_picture_and_keeps_its_size():
    slides = viz.slider(pool_states(), viz.draw_blocks, list("abcde"))
    assert (slides.control.min, slides.control.max, slides.control.value) == (1, 5, 1)
    images, texts = [], []
    for step in range(1, 6):
        slides.control.value = step
        image, text = shown_by(slides)
        images.append(image)
        texts.append(text)
    assert len(set(images)) == len(set(texts)) == 5
    assert len({image[16:24] for image in images}) == 1  # width and height, in the PNG's header
    assert slides.image.layout.width == f"{int.from_bytes(images[0][16:20], 'big')}px"
    slides.control.value = 1
    assert shown_by(slides) == (images[0], texts[0])
    assert plt.get_fignums() == []


def test_slider_shows_the_strip_and_then_the_widget_without_text(monkeypatch):
    shown = []

    def display(data, metadata=None, raw=False):
        shown.append(list(data))
        assert ("image/png" in data) == bool(metadata and metadata["image/png"]["alt"])

    monkeypatch.setattr("yaie.course.viz.slides.display", display)
    viz.slider(pool_states(), viz.draw_blocks)._ipython_display_()
    assert shown == [["image/png"], ["application/vnd.jupyter.widget-view+json"]]
    shown.clear()
    viz.slider(pool_states(), viz.draw_blocks, frames=[])._ipython_display_()
    assert shown == [["application/vnd.jupyter.widget-view+json"]]


def test_slider_over_one_state_and_over_a_growing_schedule():
    assert (
        viz.slider(STEPS[:1], lambda step, at=None: viz.draw_schedule([step], at=at)).control.max
        == 1
    )
    draw = partial(viz.draw_schedule, num_steps=4, request_ids=["a", "b", "c"])
    slides = viz.slider([STEPS[:n] for n in range(1, 5)], draw)
    first = shown_by(slides)
    slides.control.value = 4
    assert shown_by(slides) != first


def test_figures_are_freed():
    strip = viz.film_strip(pool_states(), viz.draw_blocks)
    strip._repr_png_()
    strip = weakref.ref(strip)
    gc.collect()
    assert strip() is None


# ---------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: viz.film_strip([], viz.draw_blocks), "states"),
        (lambda: viz.film_strip(pool_states(), viz.draw_blocks, ["one"]), "titles"),
        (lambda: viz.film_strip(pool_states(), viz.draw_blocks, frames=[9]), "frames"),
        (lambda: viz.slider([], viz.draw_blocks), "states"),
        (lambda: viz.Step((("a", "sleep", 1),)), "sleep"),
        (lambda: viz.Step(free_blocks=-1), "free_blocks"),
        (lambda: viz.draw_schedules({}), "schedules"),
        (lambda: viz.snapshot_sampling([]), "filters"),
        (lambda: viz.snapshot_sampling([viz.Filter("a", [[1.0]])]), "logits"),
        (lambda: viz.snapshot_sampling([viz.Filter("a", [math.nan, 1.0])]), "logits"),
        (lambda: viz.draw_attention([1.0]), "weights"),
        (lambda: viz.draw_attention([[1.0]], ["a", "b"]), "keys"),
        (lambda: viz.draw_attention([[1.0]], queries=["a", "b"]), "queries"),
        (lambda: viz.draw_rotary([[1.0]], [[1.0, 2.0]]), "cos and sin"),
        (lambda: viz.draw_growth({}), "panels"),
        (lambda: viz.draw_head_groups((9, 2)), "heads"),
        (lambda: viz.draw_trace([]), "records"),
        (lambda: viz.draw_fragmentation({}, 10), "layouts"),
        (lambda: viz.draw_course_map(100), "notebook"),
    ],
)
def test_bad_input_is_named(call, word):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=word):
        call()
