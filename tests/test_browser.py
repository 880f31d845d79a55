"""The course in a real browser: JupyterLab, run from its menu, with a slider that is moved, and the
web site.

Needs a Chromium or Chrome; without one the tests are skipped, and fail where CI is set. Pictures
of what went wrong are left in build/browser/.
"""

import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import nbformat
import pytest

from yaie.course import lab
from yaie.course.author.build import write_stubs
from yaie.course.author.notebooks import METADATA

playwright_api = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[1]
FAILURES = ROOT / "build" / "browser"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
RUN_SECONDS = 240
# JupyterLab shows errors and warnings alike as what was written to stderr.
ERROR_OUTPUT = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']"
# What JupyterLab itself writes to the console, with or without a notebook of ours.
NOT_OURS = ("favicon", "Failed to load resource", "ResizeObserver loop")


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        message = "no Chromium or Chrome: install one (Debian: sudo apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The repository with a copy of the notebooks, without outputs: those seen are fresh ones."""
    folder = tmp_path_factory.mktemp("course")
    for path in ROOT.iterdir():
        if path.name not in ("notebooks", "exercises") and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    write_stubs(folder / "exercises")
    for path in (folder / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, path)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """JupyterLab over the copy, with settings of its own; yields its address and token."""
    port, token = lab.free_port(18888), "browser-test"
    home = folder / "jupyter"
    settings = home / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    # Otherwise cells outside the window are not part of the page.
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))
    env = {
        **lab.environment(token),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "YAIE_EXERCISES_DIR": str(folder / "exercises"),
        "YAIE_STATE": str(folder / "state"),
    }
    log = (folder / "server.log").open("w")
    with subprocess.Popen(
        lab.command(port, root=folder), cwd=folder, env=env, stdout=log, stderr=log
    ) as process:
        try:
            lab.wait_until_up(port, token, process)
            yield f"http://127.0.0.1:{port}", token
        finally:
            process.terminate()
            process.wait(timeout=30)
    assert "websocket_ping" not in (folder / "server.log").read_text()  # learners see this log


@pytest.fixture
def page(browser):
    """A page that remembers its console errors."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(60_000)
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(f"page error: {error}"))
    page.on("console", lambda message: note_console(page, message))
    page.on("dialog", lambda dialog: dialog.accept())  # leaving with unsaved outputs
    yield page
    page.close()


@contextmanager
def photographed(page, name: str):
    """Leave a picture of the page if something in this context fails."""
    try:
        yield
    except BaseException:
        FAILURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=FAILURES / f"{name}.png")
        raise


def note_console(page, message) -> None:
    if message.type == "error" and not any(part in message.text for part in NOT_OURS):
        page.problems.append(f"console: {message.text}")


def open_notebook(page, server, path: str) -> None:
    address, token = server
    page.goto(f"{address}/lab/tree/{path}?token={token}&reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector("#jp-main-statusbar :text('(ipykernel) | Idle')")


def run_all(page) -> None:
    """Run → Run All Cells, and wait for the last cell."""
    page.click(".lm-MenuBar-itemLabel:text-is('Run')")
    page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        assert not page.query_selector(ERROR_OUTPUT), error_text(page)
        if not unfinished(page):
            return
        page.wait_for_timeout(250)
    pytest.fail(f"{len(unfinished(page))} cells have not ended after {RUN_SECONDS} s")


def unfinished(page) -> list[str]:
    """The prompts of the code cells that have not run to their end: "[ ]:" or "[*]:"."""
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").all_text_contents()
    return [prompt for prompt in prompts if not any(map(str.isdigit, prompt))]


def error_text(page) -> str:
    return "\n".join(page.locator(ERROR_OUTPUT).all_inner_texts())


def move_slider(page) -> None:
    """Press the right arrow on the first slider; the picture below it must change."""
    slides = page.locator(".jp-OutputArea-output div:has(> label input[type=range])").first
    slides.scroll_into_view_if_needed()
    picture = slides.locator("div:has(> img)")
    before, text = picture.screenshot(), slides.locator("img").get_attribute("alt")
    slides.locator("input").focus()
    page.keyboard.press("ArrowRight")
    assert "2 of " in slides.locator("label").inner_text()
    assert slides.locator("img").get_attribute("alt") != text
    assert picture.screenshot() != before


def save(page, path: Path) -> None:
    """Save the notebook from the menu, and wait until its file was written."""
    before = path.stat().st_mtime_ns
    page.click(".lm-MenuBar-itemLabel:text-is('File')")
    page.click(".lm-Menu-itemLabel:text-is('Save Notebook')")
    deadline = time.monotonic() + 30
    while path.stat().st_mtime_ns == before or not path.stat().st_size:  # emptied, then written
        assert time.monotonic() < deadline, "the notebook was not saved"
        page.wait_for_timeout(100)


@pytest.mark.parametrize("name", ["02_radix_tree", "00_start_here"])
@pytest.mark.timeout(RUN_SECONDS + 120)
def test_notebook_runs_from_the_menu(page, server, folder, name):
    with photographed(page, name):
        open_notebook(page, server, f"notebooks/{name}.ipynb")
        run_all(page)
        if name != "00_start_here":
            move_slider(page)
            save(page, folder / "notebooks" / f"{name}.ipynb")
            open_notebook(page, server, f"notebooks/{name}.ipynb")
            move_slider(page)  # without its kernel
        assert not page.locator(".jp-OutputArea-output img:not([alt])").count()
        assert page.get_by_role("img", name="A tree of ").count()
        assert not page.query_selector(ERROR_OUTPUT), error_text(page)
        assert not page.problems, "\n".join(page.problems)


def test_a_committed_notebook_is_read_and_saved_as_it_was(page, server, folder):
    """In a narrow window, and not trusted: scripts in its outputs do not run. It is one that
    was not saved here before, since JupyterLab trusts what it saved."""
    name, exercise = "03_paged_kv_cache", "1_allocate_blocks"
    path = folder / "notebooks" / "as_committed.ipynb"
    shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", path)
    with photographed(page, "as_committed"):
        page.set_viewport_size({"width": 1024, "height": 768})
        open_notebook(page, server, "notebooks/as_committed.ipynb")
        assert page.locator(".lm-TabBar-tab.jp-mod-current[title*='as_committed']").count()
        assert not page.locator(".jp-mod-dirty").count()
        slides = page.locator(".jp-OutputArea-output div:has(> img[src^='data:image/png'])").last
        assert slides.evaluate("view => view.scrollWidth / view.clientWidth > 2")
        assert slides.evaluate("view => getComputedStyle(view).overflowX") == "auto"
        assert not page.locator("label:visible", has_text="step").count()
        pane = page.locator(".jp-NotebookPanel-notebook").bounding_box()
        for picture in page.locator(".jp-OutputArea-output > .jp-RenderedImage img").all():
            assert picture.bounding_box()["width"] < pane["width"]
        save(page, path)
        assert path.read_bytes() == (ROOT / "notebooks" / f"{name}.ipynb").read_bytes()
        page.get_by_role("link", name=f"exercises/{name}/{exercise}.py").click()
        page.locator(".jp-FileEditor .cm-line", has_text="Exercise 03.1").first.wait_for()
        address, token = server
        cuda = "exercises/14_first_cuda_kernel/1_vector_add.cu"
        page.goto(f"{address}/lab/tree/{cuda}?token={token}&reset")
        page.locator(".jp-FileEditor .cm-line span", has_text="constexpr").first.wait_for()
        assert page.problems == []


def test_an_error_is_noticed(page, server, folder):
    """The same steps on a notebook that fails, and on a page that writes to the console."""
    failing = nbformat.v4.new_notebook(
        metadata=METADATA, cells=[nbformat.v4.new_code_cell("raise ValueError('on purpose')")]
    )
    nbformat.write(failing, folder / "notebooks" / "failing.ipynb")
    open_notebook(page, server, "notebooks/failing.ipynb")
    with pytest.raises(AssertionError, match="on purpose"):
        run_all(page)
        assert not page.query_selector(ERROR_OUTPUT), error_text(page)
    with page.expect_console_message(lambda message: message.text == "ours"):
        page.evaluate("console.error('ours')")
    assert "console: ours" in page.problems


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The web site, built without a warning or a dead link; yields its address."""
    pytest.importorskip("sphinx", reason="no Sphinx, which needs Python 3.11")
    from yaie.course.author import site

    folder = tmp_path_factory.mktemp("site") / "html"
    assert site.build(folder) == []
    pages = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), pages) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_the_web_site_is_opened_and_read(page, site):
    expect, heading = playwright_api.expect, page.locator("h1")  # a click may end too early
    page.goto(site)
    page.get_by_role("link", name="02 The radix tree").click()
    expect(heading).to_contain_text("02 The radix tree")
    pictures = page.locator("img.picture")
    assert pictures.count() > 5 and all(p.get_attribute("alt") for p in pictures.all())
    pictures.first.scroll_into_view_if_needed()
    page.wait_for_function("document.querySelector('img.picture').naturalWidth > 100")
    heights = [p.bounding_box()["height"] for p in pictures.all()]
    assert min(heights) > 100  # those not loaded yet as well, so that no link moves under a click
    page.locator("a.next-page").click()
    expect(heading).to_contain_text("03 The paged KV cache")
    page.locator("a.prev-page").click()
    expect(heading).to_contain_text("02 The radix tree")
    backgrounds = set()  # light, dark, and as the system has it
    for _ in range(3):
        page.locator(".theme-toggle:visible").click()
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    page.locator("input[name=q]").fill("copy-on-write")
    page.locator("input[name=q]").press("Enter")
    page.locator("ul.search a", has_text="03 The paged KV cache").click()
    page.get_by_role("link", name="Reference", exact=True).click()
    page.locator("[id='yaie.engine.llm.LLM']").wait_for()
    page.goto(f"{site}/18_flash_attention_cuda.html")
    page.locator("article a", has_text="flash.cuh").first.click()
    expect(page.locator(".highlight-cuda")).to_have_count(1)
    assert page.problems == []
