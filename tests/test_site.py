"""The web site's sources and links; `test_browser` builds and reads all of it."""

import re

import pytest

from yaie.course.author.notebooks import committed
from yaie.course.author.site import Stage, contents, dead_links
from yaie.course.core.paths import NOTEBOOKS, ROOT


def test_links_to_files_become_links_to_pages(tmp_path):
    stage = Stage(tmp_path)
    text = "[a](02_radix_tree.ipynb#match) [`f`](../csrc/common.cuh) `[x](y)` [web](https://x.org)"
    assert stage.links(text, NOTEBOOKS) == (
        "[a](02_radix_tree.ipynb#match) [`f`](code/csrc/common.cuh.md) `[x](y)` [web](https://x.org)"
    )
    stage.write_code(ROOT / "csrc" / "common.cuh")
    page = (tmp_path / "code" / "csrc" / "common.cuh.md").read_text()
    assert "{code-block} cuda" in page and "#pragma once" in page
    assert [*stage.code] == [ROOT / "csrc" / "common.cuh"]
    assert stage.links("```\n[x](y)\n```\n[b](README.md)", ROOT).endswith("[b](index.md)")
    for target in ("nowhere.cu", "../../etc"):
        with pytest.raises(ValueError, match="notebooks: a link leads to"):
            stage.links(f"[x]({target})", NOTEBOOKS)


def test_every_notebook_has_a_place_in_the_contents():
    named = re.findall(r"^\d\d_\w+$", contents(), re.MULTILINE)
    assert named == [path.stem for path in committed()]


def test_dead_links_are_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top-of-a">A</h1><a href="deep/b.html#here">x</a><a href="#nowhere">x</a>'
        '<a href="https://example.org">x</a><img src="missing.png"><a href="">x</a>'
    )
    (tmp_path / "deep" / "b.html").write_text(
        '<p id="here"><a href="../a.html#top-of-a">x</a><a href="../a.html#gone">x</a></p>'
    )
    wrong = ["a.html: #nowhere", "a.html: missing.png", "deep/b.html: ../a.html#gone"]
    assert sorted(dead_links(tmp_path)) == wrong
