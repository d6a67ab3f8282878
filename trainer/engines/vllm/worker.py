# pyright: basic, reportMissingImports=false
# mypy: ignore-errors
"""The extension of vLLM's workers that loads weights; `--worker-extension-cls` names the class.

vLLM mixes the class into its worker class and calls the methods by name (`/collective_rpc`),
between two steps of the engine, so that a step sees either the old weights or the new weights.
"""

from __future__ import annotations

from typing import Any

EXTENSION = "ludus.trainer.engines.vllm.worker.WeightLoader"


class WeightLoader:
    """Methods that vLLM adds to the worker class."""

    def ludus_load(self, path: str) -> dict[str, Any]:
        """Replace the model's weights by the contents of a safetensors file.

        Returns:
            `tensors` (how many were read) and `repacked_heads`, or `error`: an exception would stop
            the whole engine.
        """
        from safetensors import safe_open
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        worker: Any = self
        try:
            with safe_open(path, framework="pt", device=str(worker.device)) as file:
                names = list(file.keys())
                worker.reload_weights(
                    weights_iterator=((name, file.get_tensor(name)) for name in names)
                )
            return {"tensors": len(names), "repacked_heads": _repack_heads(worker.get_model())}
        except Exception as error:
            # The load broke off half way: a layer without new weights gets its old ones back.
            finalize_layerwise_reload(worker.get_model(), worker.model_config)
            return {"error": f"{type(error).__name__}: {error}"}


def _repack_heads(model: Any) -> int:
    """Refresh the packed copies of output heads, and return how many exist.

    On CPU the head keeps its matrix packed for the matrix product. If the head shares the matrix
    with the embedding, no weight is ever loaded into the head itself, so in vLLM 0.32 a reload
    leaves the packed copy unchanged: the body is new and the head is old, and nothing reports
    this. On other devices no packed copy exists.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    heads = [
        layer
        for layer in model.modules()
        if isinstance(layer, ParallelLMHead)
        and hasattr(layer, "cpu_linear")
        and layer.weight.numel()
    ]
    for head in heads:
        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
    return len(heads)
