"""What a CUDA graph of the engine's has to itself."""

import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

# Products as of Llama-3.1-8B, for which cuBLAS cuts sums into parts that it has to keep somewhere.
FREED = """
import sys
import torch
from yaie.engine.config import EngineConfig
from yaie.engine.engine import Engine
from yaie.engine import libraries
from yaie.model.config import ModelConfig
from yaie.bench.drawn import random_model
from types import SimpleNamespace

config = ModelConfig(
    vocab_size=1000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=1,
    num_attention_heads=32, num_key_value_heads=8, head_dim=128, max_position_embeddings=256,
)
model = random_model(config, "bfloat16", torch.device("cuda"))
libraries.GAIN = float(sys.argv[1])
config = EngineConfig(num_blocks=64, max_num_seqs=4)
engine = Engine(model, SimpleNamespace(eos_token_id=None), config)
for graph in engine.runner.graphs:
    engine.runner.lay_out_padding(graph.shape)
    before = graph.replay().tolist()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    theirs = torch.full((2**28,), 7, dtype=torch.uint8, device="cuda").split(2**20)
    pieces = [torch.full((2**20,), 7, dtype=torch.uint8, device="cuda") for _ in range(256)]
    after = graph.replay().tolist()
    assert after == before, (graph.shape, before, after)
    assert all((piece == 7).all() for piece in (*theirs, *pieces)), graph.shape
    engine.runner.forward()  # an eager step takes its own again
print("untouched")
"""


@pytest.mark.parametrize("gain", [1, -9], ids=["cuBLAS", "cuBLASLt"])
def test_the_memory_that_a_graph_works_in_cannot_be_freed(gain):
    """`torch.compile` frees what cuBLAS keeps; others put their data there. In a process of its
    own: where it goes wrong, it can use its GPU no more."""
    command = [sys.executable, "-c", FREED, str(gain)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["untouched"], done.stderr[-2000:]
