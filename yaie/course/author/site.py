"""The course as a web site, from the committed notebooks; `make site` calls it.

    python -m yaie.course.author.site [FOLDER]      by default build/site

Nothing is executed. Sphinx gives the pages, the search and the reference of the public API; the
files that notebooks link to become pages as well. The status is 1 if a page has a warning or a link
leads nowhere. Needs Python 3.11, as Sphinx does.
"""

import base64
import html
import importlib.util
import io
import re
import shutil
import sys
import time
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
from PIL import Image

from yaie.course.author.notebooks import PNG, alternative_text, committed
from yaie.course.core.paths import ROOT

DOCS = ("docs/install.md", "docs/engine.md", "docs/benchmarks.md")
PROSE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *DOCS)
REFERENCE = {
    "Engine": "engine.llm engine.params engine.sampling engine.request engine.config engine.engine",
    "Memory": "engine.kv_cache engine.radix engine.prefix_cache engine.scheduler",
    "Model": "model.config model.llama model.batch model.weights model.tokenizer model.pull",
    "Operators": "ops.registry ops.attention ops.kv ops.norm ops.rotary ops.sampling",
    "Kernels": "build.jit bench.info emulator.checks",
    "Course": "course.core.notebook course.core.observe bench.measure bench.cases",
}
LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".cpp": "cpp", ".py": "python", ".json": "json"}
CONFIGURATION = {
    "project": "YAIE",
    "html_title": "YAIE",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "nb_execution_mode": "off",
    "myst_enable_extensions": [],  # a dollar is a dollar
    "myst_heading_anchors": 4,
    "default_role": "literal",  # docstrings have Markdown's single backticks
    "autodoc_typehints": "description",
    "autodoc_typehints_description_target": "documented",
    "autodoc_member_order": "bysource",
    "html_theme": "furo",
    "html_static_path": ["_static"],
    "html_css_files": ["pictures.css"],
    "html_show_sourcelink": False,
    "html_copy_source": False,
    "html_show_sphinx": False,
}
STYLE = """.picture { background: white; padding: 4px; border-radius: 4px; }
.picture { max-width: 100%; height: auto; }
.cell_output table, article table { display: block; overflow-x: auto; }
"""
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


class Stage:
    """The sources of the site in a folder: notebooks, prose, the code that these link to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code: dict[Path, None] = {}  # linked to, in order

    def write(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "_static" / "pictures").mkdir(parents=True)
        (self.folder / "_static" / "pictures.css").write_text(STYLE)
        for path in committed():
            self.write_notebook(path)
        for name in PROSE:
            text = self.links((ROOT / name).read_text(encoding="utf-8"), (ROOT / name).parent)
            if name == "README.md":
                text += f"\n{contents()}"
            (self.folder / self.prose(name)).write_text(text, encoding="utf-8")
        (self.folder / "reference.md").write_text(reference(), encoding="utf-8")
        for path in self.code:
            self.write_code(path)

    def write_notebook(self, path: Path) -> None:
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata.language_info["pygments_lexer"] = "ipython3"  # knows %%gpu and !
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "markdown":
                cell.source = self.links(cell.source, path.parent)
            for part, output in enumerate(cell.get("outputs", [])):
                data = output.get("data", {})
                if "text/markdown" in data:  # an exercise's card
                    linked = self.links(data["text/markdown"], path.parent)
                    # MyST leaves the links of outputs as they are.
                    data["text/markdown"] = re.sub(r"(\]\([^)\s:]+)\.md\)", r"\1.html)", linked)
                if PNG in data:
                    name = f"_static/pictures/{path.stem[:2]}-{number}-{part}.png"
                    picture = base64.b64decode(output.data[PNG])
                    (self.folder / name).write_bytes(picture)
                    alt = html.escape(alternative_text(output) or "")
                    # The page keeps this much room, so nothing moves when the picture loads.
                    width, height = Image.open(io.BytesIO(picture)).size
                    tag = (
                        f'<img class="picture" loading="lazy" src="{name}" alt="{alt}"'
                        f' width="{width}" height="{height}">'
                    )
                    output.data = type(output.data)({"text/html": tag})
        nbformat.write(notebook, self.folder / path.name)

    def links(self, text: str, home: Path) -> str:
        """Links to files of the repository as links to pages; those in code stay."""
        parts = re.split(r"(^```.*?^```|`[^`\n]*`)", text, flags=re.MULTILINE | re.DOTALL)
        for number in range(0, len(parts), 2):  # the others are code
            parts[number] = LINK.sub(lambda m: m[1] + self.page(m[2], home) + m[3], parts[number])
        return "".join(parts)

    @staticmethod
    def prose(name: str) -> str:
        return "index.md" if name == "README.md" else Path(name).name

    def page(self, target: str, home: Path) -> str:
        path = (home / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            raise ValueError(f"{home.name}: a link leads to {target}, which is not here")
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".ipynb":
            return path.name
        if name in PROSE:
            return self.prose(name)
        if path.suffix == ".png":
            shutil.copy(path, self.folder / "_static" / path.name)
            return f"_static/{path.name}"
        self.code[path] = None
        return f"code/{name}.md"

    def write_code(self, path: Path) -> None:
        name = path.relative_to(ROOT).as_posix()
        page = self.folder / "code" / f"{name}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            source = "\n".join(sorted(file.name for file in path.iterdir()))
        else:
            source = path.read_text(encoding="utf-8").rstrip("\n")
        language = LANGUAGES.get(path.suffix, "text")
        block = f"``````{{code-block}} {language}\n:linenos:\n\n{source}\n``````\n"
        about = "---\norphan: true\nno-search: true\n---"
        page.write_text(f"{about}\n\n# {name}\n\n{block}", encoding="utf-8")


def contents() -> str:
    """The tables of contents, by the parts that README's table of notebooks has."""
    trees: dict[str, list[str]] = {"Begin": []}
    for row in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if part := re.match(r"\| \| \*\*(Part .*?)\*\*", row):
            trees[part[1]] = []
        elif found := re.match(r"\| \d\d \| \[.*?\]\(notebooks/(.*?)\.ipynb\)", row):
            [*_, last] = trees
            trees[last].append(found[1])
    named = {name for names in trees.values() for name in names}
    if left_out := {path.stem for path in committed()} - named:
        raise ValueError(f"README's table of notebooks lacks {', '.join(sorted(left_out))}")
    trees["Beside the notebooks"] = [Path(name).stem for name in DOCS]
    trees["Beside the notebooks"] += ["reference", "CONTRIBUTING", "CHANGELOG"]
    return "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in trees.items()
    )


def reference() -> str:
    lines = ["# Reference", "", "From the docstrings. `yaie.LLM` is `yaie.engine.llm.LLM`."]
    for title, modules in REFERENCE.items():
        lines += ["", f"## {title}"]
        for module in modules.split():
            lines += ["", f"### yaie.{module}", "", "```{eval-rst}"]
            lines += [f".. automodule:: yaie.{module}", "   :members:", "```"]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------- links


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {v for v in (values.get("id"), values.get("name")) if v}
        self.links += [v for v in (values.get("href"), values.get("src")) if v]


def dead_links(site: Path) -> Iterator[str]:
    """Links of the site's pages to pages, files or anchors that it does not have."""
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            goal = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            lacks = goal in pages and unquote(parts.fragment) not in pages[goal].anchors
            if not goal.is_file() or lacks:
                yield f"{path.relative_to(site)}: {link}"


# ------------------------------------------------------------------------------------- build


def mark_code(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Indented lines after an empty one are code: say so, or Sphinx takes them for a quotation."""
    for number in range(len(lines) - 1, 0, -1):
        before = next((line for line in reversed(lines[:number]) if line), " ")
        if lines[number].startswith("    ") and not lines[number - 1] and before[0] != " ":
            lines[number:number] = ["::", ""]


def share_navigation(app: Any, page: str, template: str, context: dict, tree: Any) -> None:
    """Make the navigation beside the pages of code once for each depth. It does not name these
    pages, so only its relative links differ. Making it takes as long as the rest of a page."""
    if page.startswith("code/"):
        context["toctree"] = app.shared.setdefault(page.count("/"), cache(context["toctree"]))


def build(folder: Path) -> list[str]:
    """Write the site; return warnings and dead links."""
    from sphinx.application import Sphinx

    source, said = folder.with_name(f"{folder.name}-source"), io.StringIO()
    Stage(source).write()
    shutil.rmtree(folder, ignore_errors=True)
    app = Sphinx(
        source, None, folder, source / ".doctrees", "html", CONFIGURATION, None, said, freshenv=True
    )
    app.shared = {}  # navigation, by the depth of a page
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon
    app.connect("html-page-context", share_navigation, priority=400)  # before furo
    app.build(force_all=True)
    plain = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue())
    return [line for line in plain.splitlines() if line] + [*dead_links(folder)]


def main(arguments: list[str]) -> int:
    if importlib.util.find_spec("sphinx") is None:
        sys.exit("Sphinx is missing, which needs Python 3.11 or later: make env PYTHON=python3.12")
    folder = Path(arguments[0] if arguments else ROOT / "build" / "site").resolve()
    begun = time.monotonic()
    faults = build(folder)
    print("\n".join(faults) or f"{folder}/index.html, {time.monotonic() - begun:.0f} s")
    return min(len(faults), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
