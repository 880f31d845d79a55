"""The rules of the house that no single module can keep alone."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from yaie.course.core.paths import ROOT, kept

PACKAGE = ROOT / "yaie"
LONGEST_MODULE = 400
LARGEST_FILE = 1024 * 1024
MOST_ENTRIES = 12  # of the package: what a reader sees first
# The engine is everything but these. It is to be read in a day.
NOT_THE_ENGINE = {"course", "emulator", "bench"}
MOST_LINES = 14_000

# What may import what: a module imports its own row and the rows above it. A room with rows of its
# own inside is named again, with what is left of it.
LAYERS = [
    {"build.cache"},
    {"emulator"},
    {"build"},
    {"ops.registry", "ops.interpreter", "ops.reference", "ops.plans"},
    {"ops.triton", "ops.cuda"},
    {"ops"},
    {"model"},
    {"engine.radix_node", "engine.radix", "engine.kv_cache", "engine.sending", "engine.threads"},
    {"engine.checks"},
    {"engine.prefix_cache", "engine.params", "engine.sampling", "engine.ranks"},
    {"engine"},
    {"server", "bench", "chat"},
    {"course.viz"},
    {"course.core"},
    {"course.exercises", "course.lessons"},
    {"course"},
    {"cli", "__main__", "bench.commands"},
]
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}
# The one way back, taken inside a function and only when it is asked for.
EXCEPTIONS = {("yaie/engine/parts.py", "yaie.course.core.plug.learner_parts")}

TOP_LEVEL = {
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile"),
    *("pyproject.toml", "constraints.txt", "environment.yml"),
    *("notebooks", "docs", "yaie", "csrc", "exercises", "solutions", "tests"),
    *(".ci", ".github", ".devcontainer", ".gitignore", ".gitattributes"),
}


def tracked() -> list[Path]:
    """The files that git would commit; without git, the test has nothing to look at."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def imports(path: Path) -> list[tuple[int, str, bool]]:
    """(line, what of ours, dotted, and whether inside a function) for every import in a file."""
    found = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found.extend((node.lineno, f"{node.module}.{a.name}", inside) for a in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(path.read_text()), False)
    return [entry for entry in found if entry[1].split(".")[0] == "yaie"]


def place(dotted: str) -> int | None:
    """The row of what is called `dotted`, such as yaie.ops.registry.choose; None for yaie itself
    and the names of its public face."""
    parts = dotted.split(".")[1:]
    heads = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((LAYER[head] for head in heads if head in LAYER), None)


def wrong_imports(path: Path, name: str) -> list[str]:
    """The imports of `path`, called `name` (yaie/…), that point the wrong way."""
    own = place(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    wrong = []
    for line, what, inside in imports(path):
        row = place(what)
        if row is None or row <= own or ((name, what) in EXCEPTIONS and inside):
            continue
        wrong.append(f"{name}:{line} imports {what}")
    return wrong


def rooms() -> set[str]:
    """The entries of the package."""
    return {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}


def test_the_package_has_few_entries_and_each_has_its_place():
    assert len(rooms()) <= MOST_ENTRIES
    assert {name.removesuffix(".py") for name in rooms()} - {"__init__", "py.typed"} <= set(LAYER)


def test_the_engine_can_be_read_in_a_day():
    modules = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in NOT_THE_ENGINE
    ]
    lines = sum(len(path.read_text().splitlines()) for path in modules)
    assert lines <= MOST_LINES, f"{lines:,} lines, at most {MOST_LINES:,} are wanted"


def test_imports_point_one_way():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name != "yaie/__init__.py":
            wrong += wrong_imports(path, name)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_import_is_noticed(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "import yaie.engine.llm\nfrom yaie import course\n\n"
        "from yaie.engine import radix\nfrom yaie.ops import registry, norm\n"
    )
    assert wrong_imports(path, "yaie/engine/kv_cache.py") == [
        "yaie/engine/kv_cache.py:1 imports yaie.engine.llm",
        "yaie/engine/kv_cache.py:2 imports yaie.course",
    ]
    assert wrong_imports(path, "yaie/ops/cuda/norm.py")[2:] == [
        "yaie/ops/cuda/norm.py:4 imports yaie.engine.radix",
        "yaie/ops/cuda/norm.py:5 imports yaie.ops.norm",
    ]
    lazy = "from yaie.course.core.plug import learner_parts"
    path.write_text(f"{lazy}\ndef f():\n    {lazy}\n")
    assert wrong_imports(path, "yaie/engine/parts.py") == [
        "yaie/engine/parts.py:1 imports yaie.course.core.plug.learner_parts"
    ]


def loaded_by(statement: str) -> set[str]:
    """The packages that a fresh Python has loaded after `statement`."""
    code = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_import_yaie_loads_nothing_else():
    added = loaded_by("import yaie") - loaded_by("pass") - set(sys.stdlib_module_names)
    assert added == {"yaie"}


def test_lazy_names():
    import yaie
    from yaie.engine.llm import LLM
    from yaie.engine.params import SamplingParams

    assert yaie.LLM is LLM and yaie.SamplingParams is SamplingParams
    assert yaie.jit is importlib.import_module("yaie.build.jit")
    assert {"LLM", "SamplingParams", "jit"} <= set(dir(yaie))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = yaie.Nothing


def test_modules_stay_small():
    """All but the checks of the exercises, which are lists of cases."""
    modules = set(PACKAGE.rglob("*.py")) - set((PACKAGE / "course" / "exercises").rglob("*.py"))
    lengths = {path: len(path.read_text().splitlines()) for path in modules}
    long = [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > LONGEST_MODULE]
    assert not long, "\n".join(long)


def test_nothing_else_at_the_top():
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= TOP_LEVEL


def test_no_large_files():
    large = [p.relative_to(ROOT) for p in tracked() if p.stat().st_size > LARGEST_FILE]
    assert not large, large


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("unfinished work", r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"),
        ("a path of one machine", r"(?<![\w.:/~])/(home/[a-z]|root/)"),
        ("trailing blanks", r"[ \t]$"),
        ("British spelling", r"(?i)(col|neighb|behavi)" r"our|licen" r"ce\b"),
        (
            "British spelling",
            r"(?i)(ogn|rmal|itial|mmar|uant|ptim|rgan|erial)is" r"(e|ed|ing|ation)\b",
        ),
    ],
)
def test_text_is_clean(what, pattern):
    pattern = re.compile(pattern, re.MULTILINE)
    suffixes = {".py", ".md", ".cu", ".cuh", ".h", ".cpp", ".toml", ".yml", ".txt", ".cfg", ""}
    found = []
    for path in tracked():
        own = path.is_relative_to(ROOT / "exercises")  # the learner's
        if path.suffix not in suffixes or path.name == "LICENSE" or own:
            continue
        text = path.read_text(errors="replace")
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}: {what}")
    assert not found, "\n".join(found)


def test_links_between_files_lead_somewhere():
    dead = []
    for path in tracked():
        if path.suffix == ".md":
            for target in re.findall(r"\]\(([^)#\s]+)", path.read_text()):
                if "://" not in target and not (path.parent / target).exists():
                    dead.append(f"{path.relative_to(ROOT)}: {target}")
    assert not dead, "\n".join(dead)


def test_the_readme_has_every_notebook_with_its_minutes():
    rows = re.findall(r"^\| \d\d \| \[.*?\]\(notebooks/(\w+)\.ipynb\) \|.*\| (\d+) \|$",
                      (ROOT / "README.md").read_text(), re.MULTILINE)  # fmt: skip
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        first = "".join(json.loads(path.read_text())["cells"][0]["source"])
        times = re.search(r"\| \**Time\** \|(.*)", first)[1]
        found[path.stem] = sum(map(int, re.findall(r"\d+", times)))
    assert {stem: int(told) for stem, told in rows} == found


def test_the_benchmarks_say_what_was_measured():
    def ms(name, shape):
        return {r["who"]: r["ms"] for r in kept(name)["results"] if r["shape"].startswith(shape)}

    paged = ms("bench_kernels_h200", "B64 ctx4096 heads 32/8")
    flash = kept("18_flash_h200")["problems"]["B4 H32 S4096 d128 causal"]["rows"]
    mma, fa2, cudnn = (
        flash[who]["tflop_s"] for who in ("mma", "SDPA, FlashAttention-2", "SDPA, cuDNN")
    )
    product = ms("bench_kernels_h200", "4096 × 4096 × 4096")
    tokens = ms("21_sampling_h200", "256 × 128256, top-k 50")
    steps = {
        (row["batch"], row["context"]): 1 / row["step over floor"]
        for row in kept("27_engine_h200")["steps"]
    }
    one = kept("27_one_request_h200")["steps"][0]
    by_torch = one["torch's products"]
    small, large = (
        [row["ratio"] for row in kept(name)["results"]["transformers"]]
        for name in ("28_engine_h200", "28_engine_h200_llama8b")
    )
    cached = [
        row["cold over cached"]
        for row in kept("27_engine_h200")["first token"]
        if len(row["graphs of prompts"]) > 1
    ]
    few, many = (row["ratio"] for row in kept("28_serve_cpu")["results"]["transformers"])
    told = [
        f"{kept('19_paged_h200')['decode']['B64 ctx4096']['rows']['mma']['of_flashinfer']:.2f} and "
        f"{paged['FlashInfer, tensor cores'] / paged['triton']:.2f} times",
        f"{mma / fa2:.2f} and {mma / cudnn:.2f} times",
        f"{kept('16_matmul_h200')['products']['bfloat16']['mma']['of_library']:.2f} and "
        f"{product['cuBLAS (torch.mm)'] / product['triton']:.2f} times",
        f"{tokens['FlashInfer, from probabilities'] / tokens['cuda']:.1f} times",
        f"{steps[32, 4096]:.2f} times",
        f"{1 / one['step over floor']:.2f} and {by_torch['gpu ms'] / one['gpu ms']:.2f} times",
        f"{small[0]:.1f} and {small[1]:.1f} times",
        f"{large[0]:.1f} and {large[1]:.1f} times",
        f"{small[2]:.1f} and {small[3]:.1f} times",
        f"{cached[0]:.1f} and {cached[1]:.1f} times",
        f"{few:.2f} times as fast as transformers",
        f"{many:.1f} times as fast",
    ]
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [words for words in told if words not in benchmarks] == []


CHECKED = {
    **{path: ("--builtin-schema", "vendor.github-workflows")
       for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))},
    ROOT / ".devcontainer/devcontainer.json": (
        "--schemafile", str(ROOT / "tests/schemas/devcontainer.json")),
}  # fmt: skip


def schema_errors(path: Path, *schema: str) -> str:
    """What is wrong with a file by a schema; empty if nothing is."""
    command = pytest.importorskip("check_jsonschema").main
    done = CliRunner().invoke(command, [*schema, str(path)])
    return done.output if done.exit_code else ""


@pytest.mark.parametrize("path", CHECKED, ids=[path.name for path in CHECKED])
def test_what_other_programs_read_has_their_form(path):
    """Workflows by SchemaStore's schema, which is part of check-jsonschema; the development
    container by the schema of its specification."""
    assert not schema_errors(path, *CHECKED[path])


def test_a_wrong_devcontainer_is_noticed(tmp_path):
    right = ROOT / ".devcontainer/devcontainer.json"
    wrong = tmp_path / "devcontainer.json"
    wrong.write_text(right.read_text().replace('"cpus"', '"cpu"'))
    assert "cpu" in schema_errors(wrong, *CHECKED[right])
