"""yaie bench jit: it measures what it says, and puts the targets beside it. No figure is judged."""

import pytest

from yaie.bench import jit as bench


def test_what_the_emulator_takes(monkeypatch, capsys):
    monkeypatch.setattr(bench.torch.cuda, "is_available", lambda: False)
    compiled = [bench.Figure("first kernel, from an empty cache", 0.5, "s", 1.5)]
    monkeypatch.setattr(bench, "_compiling", lambda device, rounds: compiled)
    figures = bench.run(rounds=1)
    assert figures[0] is compiled[0]
    assert {f.name for f in figures if f.target} == {
        "first kernel, from an empty cache",
        "a barrier, per thread",
        "a checked access",
        "tiled matrix product, 256³",
    }
    assert all(figure.value > 0 for figure in figures[1:])
    told = capsys.readouterr().out
    assert all(figure.name in told for figure in figures)
    assert "≤ 1.5 s" in told and "least of 1 rounds" in told
    with pytest.raises(ValueError, match="rounds must be 1 or more"):
        bench.run(0)


@pytest.mark.usefixtures("warm_python")
def test_a_first_call_in_a_process_of_its_own(tmp_path):
    cold = bench._first_call("cpu", str(tmp_path))
    assert list((tmp_path / "emulator").glob("kernel-*.so"))
    assert bench._first_call("cpu", str(tmp_path)) > 0 and cold > 0
