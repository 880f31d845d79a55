"""The notebooks as they are committed, and the tool that brings them into that form."""

import copy
import re
import shutil
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from yaie.course.author import minutes, objectives
from yaie.course.author import notebooks as authoring
from yaie.course.author.notebooks import (
    METADATA,
    ROOT,
    WIDGET_VIEW,
    normalize,
    problems,
)
from yaie.course.core.manifest import find


@pytest.mark.parametrize("path", authoring.committed(), ids=lambda path: path.stem)
def test_committed_notebooks_are_in_normal_form(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not authoring.check(str(path))
    again = copy.deepcopy(notebook)
    normalize(again)
    assert again == notebook, f"python -m yaie.course.author run {path.stem}"
    # `hint("04.1")` and `solution("04.1")` stand on every card, for cells of their own.
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    imported = re.findall(r"^from yaie\.course import (.*)$", code, re.MULTILINE)
    if "card(" in code:
        assert {"card", "check", "hint", "solution"} <= set(", ".join(imported).split(", "))
    # A skipped cell shows no error: its exercises are the notebook's own, too.
    own = re.findall(r"\b(?:card|check)\(\"(\d\d)\.|\bf\"(\d\d)\.\{", code)
    assert {"".join(found) for found in own} <= {path.name[:2]}


@pytest.mark.parametrize("path", authoring.committed()[1:], ids=lambda path: path.stem)
def test_every_notebook_after_the_start_has_the_parts_of_the_template(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#{2,3} (.+)", text, re.MULTILINE)
    assert any(heading.startswith("Break it") for heading in headings), headings
    assert headings.count("Does it hold?") == 1, headings
    assert headings.index("Recap") < headings.index("To go further"), headings


def test_every_notebook_has_a_number_of_its_own():
    numbers = [int(path.name[:2]) for path in authoring.committed()]
    assert numbers == sorted(set(numbers))


def ran(source: str, count: int, *outputs, **metadata):
    return new_code_cell(
        source, execution_count=count, outputs=list(outputs), metadata=dict(metadata)
    )


def stream(text: str, name: str = "stdout"):
    return new_output("stream", name=name, text=text)


def shown(**data):
    return new_output("display_data", data={k.replace("_", "/"): v for k, v in data.items()})


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([ran("1", 2)], "execution count 2, not 1"),
        ([new_code_cell("1")], "execution count None"),
        ([ran("x", 1, new_output("error", ename="NameError", evalue="x"))], "NameError"),
        ([ran("x", 1, stream("careful", name="stderr"))], "stderr"),
        ([ran("x", 1, stream(f"saved {ROOT}/build"))], "prints a path"),
        ([ran("x", 1, shown(text_plain="File '/Users/me/a.py'"))], "prints a path"),
        ([ran("open('/tmp/x')", 1)], "names a path"),
        ([new_markdown_cell("see /mnt/notes")], "names a path"),
        ([ran("x", 1, collapsed=True)], "collapsed"),
        ([ran("x", 1, new_output("display_data", data={WIDGET_VIEW: {}}))], "holds a widget"),
        ([ran("x", 1, shown(image_png="abc"))], "a picture without an alternative text"),
    ],
)
def test_what_is_wrong_is_said(cells, words):
    notebook = new_notebook(cells=cells, metadata=METADATA)
    [problem] = problems(notebook)
    assert words in problem


def test_metadata_size_and_gpu_cells_are_looked_at():
    notebook = new_notebook(metadata={**METADATA, "widgets": {}})
    assert "widgets" in problems(notebook)[0]
    assert "bytes" in problems(new_notebook(metadata=METADATA), size=2_000_000)[0]
    cells = [ran("1", 1), new_code_cell("%%gpu\nf()", metadata={"tags": ["gpu"]}), ran("2", 2)]
    assert not problems(new_notebook(cells=cells, metadata=METADATA)), "they need not have run"
    cells = [new_code_cell("f()", metadata={"tags": ["gpu"]})]
    [problem] = problems(new_notebook(cells=cells, metadata=METADATA))
    assert "tagged gpu, but its first line is not %%gpu" in problem


def test_normal_form():
    picture = shown(image_png="abc", text_plain="<Figure>")
    alt = {"image/png": {"alt": "A picture."}}
    picture.metadata.update(needs_background="light", **alt)
    timing = {"execution": {"iopub.execute_input": "2026"}, "collapsed": True}
    notebook = new_notebook(
        metadata={"widgets": {}, "language_info": {"name": "python", "version": "3.11.7"}},
        cells=[
            ran("a", 1, stream("x"), stream("y"), stream("z", name="stderr"), **timing),
            ran("b", 2, picture, tags=["keep"]),
        ],
    )
    normalize(notebook)
    first, second = notebook.cells
    assert notebook.metadata == METADATA
    assert [(o.name, o.text) for o in first.outputs] == [("stdout", "xy"), ("stderr", "z")]
    assert first.metadata == {}
    assert [o.metadata for o in second.outputs] == [alt]
    assert second.metadata == {"tags": ["keep"]}
    once = copy.deepcopy(notebook)
    normalize(notebook)
    assert notebook == once


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(authoring, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(authoring, "TEXTS", tmp_path / "texts")
    (tmp_path / "notebooks").mkdir()
    return tmp_path


TEXT = """\
# %% [markdown]
# # A notebook
#
# | Time | a while |
#
# At the end of this notebook you can
#
# - add up *(predict first in "Sums")*.
#
# ## Sums
#
# **Predict first.** What is 1 + 2?

# %%
import sys
numbers = [ 1,2 ]

# %%
print(sum(numbers), "in 0.25 s")

# %% tags=["gpu"]
# %%gpu
import no_such_module
"""


PROMISES = """\
After it you can

- **count** tokens *(exercise 02.1; predict first in "A (first) count" and "Twice, 02.3")*;
- draw
  trees *({})*.

## A (first) count

**Predict first: how many?**

## Twice, 02.3

Text. **Predict first.** And how
many now?"""


CHECKS = ['check("02.1")', 'if True:\n    check("02.2")']


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ('predict first in "Twice, 02.3"', None),
        ("exercises 02.1 and 02.2", None),
        ("exercise 02.3", "'draw trees': no check of exercise 02.3"),
        ('predict first in "Trees"', "'draw trees': no prediction under the heading 'Trees'"),
        ("no more", "nothing tests the objective 'draw trees *(no more)*'"),
    ],
)
def test_an_objective_that_nothing_tests_is_refused(tests, words):
    cells = [new_markdown_cell(PROMISES.format(tests)), *map(new_code_cell, CHECKS)]
    found = objectives.problems(new_notebook(cells=cells))
    assert [words in problem for problem in found] == ([True] if words else [])
    listing = objectives.listing(new_notebook(cells=cells))
    assert '**count** tokens\n      02.1, "A (first) count", "Twice, 02.3"\n' in listing
    assert '* "A (first) count": how many?\n  * "Twice, 02.3": And how many now?' in listing
    assert ("NOTHING TESTS IT" in listing) == (tests == "no more")


def test_a_notebook_without_objectives_is_refused():
    for cells in ([], [new_markdown_cell("# 02 Trees")]):
        assert "no objectives" in objectives.problems(new_notebook(cells=cells))[0]


def test_from_text_to_notebook_and_back(folder):
    """Built, run, formatted; built again from its own text it keeps ids and outputs."""
    source = folder / "00_first.py"
    source.write_text(TEXT)
    path = authoring.build(str(source))
    notebook = nbformat.read(path, as_version=4)
    assert not authoring.check("00")
    assert "| Time | 5 minutes to read, 0 for exercises |" in notebook.cells[0].source
    assert "numbers = [1, 2]" in notebook.cells[1].source
    assert notebook.cells[2].outputs[0].text == "3 in 0.25 s\n"
    assert notebook.cells[3].execution_count is None

    text = authoring.text("00")
    assert "language_info" not in text.read_text()
    authoring.build(str(text))
    assert nbformat.read(path, as_version=4) == notebook


def test_an_error_is_said_and_kept(folder):
    source = folder / "00_first.py"
    source.write_text("# %%\nprint(1)\n\n# %%\nraise ValueError('what is wrong')\n")
    with pytest.raises(SystemExit, match="what is wrong"):
        authoring.build(str(source))
    assert any("ValueError" in problem for problem in authoring.check("00"))


def test_nbval_compares_outputs_and_skips_gpu_cells(folder, capfd):
    """A changed output fails, a changed duration does not, a GPU cell is skipped."""
    pytest.importorskip("nbval")
    source = folder / "00_first.py"
    source.write_text(TEXT)
    path = authoring.build(str(source))
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={folder}"]
    path.write_text(path.read_text().replace("0.25 s\\n", "0.75 s\\n", 1))
    path.with_name("01_second.ipynb").write_text(path.read_text().replace("3 in", "4 in"))
    assert authoring.test(["00", "01"], arguments) == 1
    said = capfd.readouterr().out
    assert "1 failed, 3 passed, 2 skipped" in said
    assert re.search(r"^FAILED .*01_second\.ipynb::Cell 1", said, re.MULTILINE)
    assert "Cell outputs differ" in said


def test_a_notebook_is_found_by_number_stem_and_path(folder):
    path = authoring.NOTEBOOKS / "07_seventh.ipynb"
    nbformat.write(new_notebook(), path)
    for name in ("07", "07_seventh", "07_seventh.ipynb", str(path)):
        assert authoring.find(name) == path
    with pytest.raises(ValueError, match="no notebook '08'; there are: 07_seventh"):
        authoring.find("08")


def test_the_tool_is_used_by_the_environment_it_is_in():
    """Notebooks run under the interpreter that runs the tests, whatever kernels a user has."""
    from jupyter_client.kernelspec import KernelSpecManager

    program = KernelSpecManager().get_kernel_spec("python3").argv[0]
    assert program in ("python", "python3") or shutil.which(program) == sys.executable


def test_the_card_says_how_long_reading_and_exercises_take():
    text = "# A title\n\n| | |\n|---|---|\n| **Time** | 90 minutes |\n| GPU | no |\n"
    page = {"image/png": "abc"}, {"text/html": '<div><img src="data:"></div>'}, {"text/html": "x"}
    cells = [new_markdown_cell(text), new_markdown_cell("word " * (1000 - len(text.split())))]
    cells += [ran("draw()", 1, new_output("display_data", data=data)) for data in page]
    cells.append(ran('check("00.1")\ncheck("02.2")', 4))
    notebook = new_notebook(cells=cells)  # 1,000 words and two pictures: 7 minutes
    wanted = f"10 minutes to read, {find('00.1').minutes + find('02.2').minutes} for exercises"
    [problem] = minutes.problems(notebook)
    assert "'90 minutes'" in problem and repr(wanted) in problem
    minutes.write(notebook)
    assert notebook.cells[0].source == text.replace("90 minutes", wanted)
    assert not minutes.problems(notebook)


def test_the_readme_gets_the_minutes():
    row = "| 02 | [The radix tree](notebooks/02_radix_tree.ipynb) | a trie; [x](y) | no | {} |\n"
    text = "| | Notebook | Minutes |\n" + row
    assert minutes.in_readme(text.format(80), {"02_radix_tree": 95}) == text.format(95)
    assert minutes.in_readme(text.format(80), {"03_paged": 95}) == text.format(80)
