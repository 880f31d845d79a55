"""From a model's name and a config to an engine that is ready."""

from itertools import count
from pathlib import Path

from yaie.engine.config import EngineConfig
from yaie.engine.device import choose_device, choose_dtype, explain_shortage
from yaie.engine.engine import Engine
from yaie.engine.parallel import ParallelEngine, together
from yaie.engine.parts import Exercises, chosen_parts
from yaie.engine.ranks import before_leaving
from yaie.engine.threads import return_freed_memory
from yaie.model.config import ModelConfig
from yaie.model.llama import STEP_OPERATORS
from yaie.model.pull import find_model
from yaie.model.tokenizer import Tokenizer
from yaie.model.weights import load_model
from yaie.ops.registry import choose, register

_number = count(1)  # of engines with learners' operators, for the names of these back ends


def start_engine(
    model: str | Path, config: EngineConfig, exercises: Exercises = None, announce: bool = False
) -> Engine:
    """Load a model and make its engine, in this process and in others if they share the model.

    Args:
        model, exercises: as for `LLM`.
        announce: whether to print that the model is loaded, once the options are known to be right.

    The engine is to be closed in the end. Raises ValueError or TypeError, before a model is loaded,
    if there is no such device, dtype, operator or back end.
    """
    device, backends = choose_device(config.device), choose(STEP_OPERATORS, config.backend)
    dtype = choose_dtype(config.dtype, device)
    if announce:
        print(f"loading {model} ...", flush=True)
    parts = chosen_parts(exercises)
    for line in parts.report:
        print(line)
    folder = find_model(model)
    model_config = ModelConfig.from_folder(folder)
    name = f"exercises-{next(_number)}"  # another engine may have another version of them
    for operator, function in parts.operators.items():
        register(operator, name, function)
        backends[operator] = name
    with together(model_config, device, folder, config, exercises) as (ranks, shard):
        with explain_shortage(
            f"the weights of {folder.name} do not fit {device}: take a smaller dtype or model"
        ):
            llama = load_model(folder, dtype, device, backends, shard)
        arguments = (llama, Tokenizer(folder), config, parts)
        return_freed_memory()
        engine = Engine(*arguments) if ranks is None else ParallelEngine(ranks, *arguments)
        if shard.size > 1:
            before_leaving(engine.runner.forget_graphs)
        return engine
