"""Pictures: pure, within their page, silent, and made of recorded state."""

import base64
import gc
import io
import re
import warnings
import weakref
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pictures
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyBboxPatch, Rectangle
from pictures import (
    AWKWARD,
    PICTURES,
    REFUSED,
    STEPS,
    awkward_text,
    causal,
    pool_states,
    radix_tree,
    sampling_state,
    words,
)
from PIL import Image

from yaie.course import viz
from yaie.course.lessons.trie import TokenTrie
from yaie.course.viz import page, style
from yaie.course.viz.tree_state import compare
from yaie.engine.kv_cache import KVCacheManager
from yaie.engine.radix import RadixTree

SMALLEST = 5.5  # points: 7 pixels of a page that is not scaled
INNER = {"draw_title", "draw_frame", "draw_mask", "draw_banks", "draw_sectors"}  # parts of others
pytestmark = pytest.mark.filterwarnings("error")


# ---------------------------------------------------------------------------------- every picture


@cache
def picture(name: str) -> page.Picture:
    return PICTURES[name][0]()


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
    assert PICTURES[name][1] <= set(words(figure))


@pytest.mark.parametrize("name", PICTURES)
def test_words_do_not_overlap(name):
    figure = picture(name)
    texts = [text for ax in figure.axes for text in ax.texts if text.get_text().strip()]
    bounds = [text.get_window_extent() for text in texts]
    for i, a in enumerate(bounds):
        for j, b in enumerate(bounds[:i]):
            across = min(a.x1, b.x1) - max(a.x0, b.x0)
            down = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert across <= 1 or down <= 2, (texts[i].get_text(), texts[j].get_text())


def surfaces(figure) -> list:
    """The face of every box and bar that is one color."""
    patches = figure.findobj(lambda a: isinstance(a, Rectangle | FancyBboxPatch))
    faces = [tuple(patch.get_facecolor()) for patch in patches]
    return [face[:3] for face in faces if face[3] > 0]


def is_tint(face, color) -> bool:
    """Whether `face` is `color`, mixed into the paper as far as one likes."""
    paper, face, color = (np.array(to_rgb(c)) for c in (style.PAPER, face, color))
    way = color - paper
    share = float((face - paper) @ way / (way @ way))
    return -0.01 <= share <= 1.01 and bool(np.allclose(paper + share * way, face, atol=0.008))


PALETTE = (*style.SERIES, style.PINK, style.INK, style.MUTED, style.FAINT, style.WASH, "#ffffff")
SCALE = [tuple(matplotlib.colormaps["Blues"](i)[:3]) for i in range(256)]  # of numbers


@pytest.mark.parametrize("name", PICTURES)
def test_colors_are_those_of_the_course(name):
    for face in set(surfaces(picture(name))):
        assert any(is_tint(face, color) for color in PALETTE) or face in SCALE, face


@pytest.mark.parametrize("name", PICTURES)
def test_words_can_be_read(name):
    figure = picture(name)
    texts = [text for ax in figure.axes for text in ax.texts if text.get_text().strip()]
    bounds = [text.get_window_extent() for text in texts]
    shown = [text for text in texts if text.get_visible()]
    plt.setp(shown, visible=False)
    try:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        below = np.asarray(canvas.buffer_rgba())[:, :, :3] / 255
    finally:
        plt.setp(shown, visible=True)
    for text, box in zip(texts, bounds, strict=True):
        assert text.get_fontsize() >= SMALLEST, text.get_text()
        rows = slice(max(0, int(below.shape[0] - box.y1)), int(below.shape[0] - box.y0) + 1)
        patch = below[rows, max(0, int(box.x0)) : int(box.x1) + 1].reshape(-1, 3)
        ground = np.median(patch, axis=0)
        readable = style.contrast(text.get_color(), ground)
        assert readable >= style.READABLE - 0.05, (text.get_text(), round(readable, 2), ground)


def test_every_drawing_function_is_among_the_pictures():
    shown = Path(pictures.__file__).read_text()
    modules = Path(viz.__file__).parent.glob("*.py")
    text = "\n".join(module.read_text() for module in modules)
    drawing = set(re.findall(r"^def (draw_\w+)", text, re.MULTILINE))
    assert drawing - set(re.findall(r"draw_\w+", shown)) == INNER


def test_committed_pictures_are_no_wider_than_a_notebook():
    notebooks = sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb"))
    assert len(notebooks) >= 30
    for notebook in notebooks:
        for content in re.findall(r'"image/png": "([^"\\]+)', notebook.read_text()):
            width = int.from_bytes(base64.b64decode(content[:32])[16:20], "big")
            assert 0 < width <= style.WIDTH * style.DPI + 1, (notebook.name, width)


REPEATED = ["tree", "schedules", "sampling", "readme", "rounds", "bits", "shares", "heads of ranks"]


@pytest.mark.parametrize("name", REPEATED)
def test_the_same_state_gives_the_same_bytes(name):
    assert PICTURES[name][0]()._repr_png_() == picture(name)._repr_png_()


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
    said = words(viz.draw_tree(viz.snapshot_tree(trie)))
    assert "1,501 nodes, 1,500 tokens" in said
    assert any("more nodes" in text for text in said)


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


class _Slides(HTMLParser):
    """What a page has of a slider: attributes by tag, the last of each."""

    def __init__(self, slides) -> None:
        super().__init__()
        self.tags: dict[str, dict[str, str | None]] = {}
        self.feed(slides._repr_html_())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = dict(attrs)

    @property
    def picture(self) -> Image.Image:
        content = self.tags["img"]["src"].partition("base64,")[2]
        return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_slider_is_one_picture_of_all_states_and_their_texts():
    slides = viz.slider(pool_states(), viz.draw_blocks, list("abcde"))
    tags, picture = _Slides(slides).tags, _Slides(slides).picture
    assert (tags["input"]["min"], tags["input"]["max"], tags["input"]["value"]) == ("1", "5", "1")
    assert "width: 500%" in tags["img"]["style"]
    width = picture.width // 5
    frames = [picture.crop((i * width, 0, (i + 1) * width, picture.height)) for i in range(5)]
    assert picture.width == 5 * width and len({frame.tobytes() for frame in frames}) == 5
    texts = tags["img"]["alt"].split("\n")
    assert texts == slides.texts and [text[:2] for text in texts] == ["A:", "B:", "C:", "D:", "E:"]
    assert plt.get_fignums() == []
    for frame in frames:  # nothing crosses an edge
        for x in (0, 1, width - 2, width - 1):
            assert len(frame.crop((x, 0, x + 1, frame.height)).getcolors()) == 1


def test_a_slider_shows_pages_without_scripts_all_of_its_picture():
    tags = _Slides(viz.slider(STEPS[:2], lambda s: viz.draw_schedule([s]))).tags
    assert tags["label"]["style"] == "display: none"
    assert tags["div"]["style"] == "overflow-x: auto"


def test_a_slider_shows_the_strip_first_if_it_is_wanted(monkeypatch):
    shown = []

    def display(data, metadata=None, raw=False):
        shown.append(list(data))
        assert ("image/png" in data) == bool(metadata and metadata["image/png"]["alt"])

    monkeypatch.setattr("yaie.course.viz.slides.display", display)
    states = pool_states()[:2]
    viz.slider(states, viz.draw_blocks)._ipython_display_()
    assert shown == [["image/png"], ["text/html"]]
    shown.clear()
    viz.slider(states, viz.draw_blocks, frames=[])._ipython_display_()
    assert shown == [["text/html"]]


def test_a_slider_over_one_state_and_over_a_growing_schedule():
    one = viz.slider(STEPS[:1], lambda step: viz.draw_schedule([step]))
    assert _Slides(one).tags["input"]["max"] == "1"
    draw = partial(viz.draw_schedule, num_steps=4, request_ids=["a", "b", "c"])
    assert len(set(viz.slider([STEPS[:n] for n in range(1, 5)], draw).texts)) == 4


def test_figures_are_freed():
    strip = viz.film_strip(pool_states()[:2], viz.draw_blocks)
    strip._repr_png_()
    strip = weakref.ref(strip)
    gc.collect()
    assert strip() is None


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_drawn_is_named(call, message):
    with warnings.catch_warnings(), pytest.raises(ValueError, match=message):
        call()
