"""`make providers`: the shipped cases through each provider's dialect, and real calls to a llama.cpp server.

The llama.cpp server is built from its package on the first run (four minutes). Its model is a tiny one with random
weights, made here: what it says is noise, and that the noise is framed, forced into a tool's schema, metered and booked
is what counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anthropic
import httpx2

from gateway.config import ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from ledger.store import Ledger, create_ledger_engine
from producers.local.supervisor import free_port
from tests.integration.gateway.gateway_world import HAIKU, gateway_world
from tests.provider_dialects import ACCESS, BEARER, PROJECT, REGION, SECRET, dialects, service_account
from tests.services import Postgres, wait_until

_PREFIX = "POINTSMAN_GATEWAY__PROVIDERS__OTHER__"
_PACKAGES = ("llama-cpp-python[server]==0.3.36", "gguf==0.19.0")
_VENV = Path(".venv/llama")
_START_SECONDS = 60
_TOOL = {
    "name": "set_title",
    "input_schema": {
        "type": "object",
        "properties": {"title": {"type": "string", "maxLength": 12}},
        "required": ["title"],
    },
}
_MAKE_MODEL = """
import sys
import gguf
import numpy

pieces = [*"abcdefghijklmnopqrstuvwxyz0123456789.,{}[]:", '"', "\u2581"]
vocabulary = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
width, inner, layers, heads = 64, 128, 2, 4
file = gguf.GGUFWriter(sys.argv[1], "llama")
file.add_context_length(8192)
file.add_embedding_length(width)
file.add_block_count(layers)
file.add_feed_forward_length(inner)
file.add_head_count(heads)
file.add_head_count_kv(heads)
file.add_layer_norm_rms_eps(1e-5)
file.add_rope_dimension_count(width // heads)
file.add_vocab_size(len(vocabulary))
file.add_file_type(0)
file.add_tokenizer_model("llama")
file.add_token_list([piece.encode() for piece in vocabulary])
file.add_token_scores([0.0] * 3 + [-1000.0] * 256 + [-float(rank) for rank in range(len(pieces))])
file.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(pieces))
file.add_bos_token_id(1)
file.add_eos_token_id(2)
file.add_unk_token_id(0)
dice = numpy.random.default_rng(7)


def noise(name, *shape):
    file.add_tensor(name, (dice.standard_normal(shape) * 0.05).astype(numpy.float32))


def ones(name):
    file.add_tensor(name, numpy.ones(width, dtype=numpy.float32))


noise("token_embd.weight", len(vocabulary), width)
ones("output_norm.weight")
noise("output.weight", len(vocabulary), width)
for layer in range(layers):
    block = f"blk.{layer}."
    ones(block + "attn_norm.weight")
    ones(block + "ffn_norm.weight")
    for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
        noise(f"{block}{part}.weight", width, width)
    noise(block + "ffn_gate.weight", inner, width)
    noise(block + "ffn_up.weight", inner, width)
    noise(block + "ffn_down.weight", width, inner)
file.write_header_to_file()
file.write_kv_data_to_file()
file.write_tensors_to_file()
file.close()
"""


def run_cases(dialect: str) -> bool:
    """Run the shipped cases through one dialect; return whether all came out right."""
    with running_fake_provider(FakeProviderConfig(speed="max")) as upstream, dialects(upstream.url) as server:
        account = {
            "openai": {"API": "openai", "BASE_URL": f"{server.url}/openai/v1", "API_KEY": BEARER},
            "bedrock": {
                "API": "bedrock",
                "BASE_URL": server.url,
                "API_KEY": f"{ACCESS}:{SECRET}",
                "REGION": REGION,
            },
            "vertex": {"API": "vertex", "BASE_URL": server.url + PROJECT, "API_KEY": service_account()[0]},
        }[dialect]
        settings = {f"{_PREFIX}{name}": value for name, value in account.items()}
        argv = [
            sys.executable,
            "-m",
            "producers.cli",
            "eval",
            "--provider",
            "other",
            "--budget",
            "20",
            "--json",
            "--no-browser",
        ]
        ran = subprocess.run(argv, env=os.environ | settings, check=False, stdout=subprocess.PIPE)
    summary = json.loads(ran.stdout)
    print(f"{summary['passed']} of {summary['ran']} cases for ${summary['cost_usd']}")
    return bool(summary["passed"] == summary["ran"])


@contextmanager
def llama_server(home: Path) -> Iterator[str]:
    """A llama.cpp server of the chat-completions API; yields the base URL."""
    python = _VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(_VENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
    model, port = home / "tiny.gguf", free_port()
    subprocess.run([python, "-c", _MAKE_MODEL, str(model)], check=True)
    argv = [python, "-m", "llama_cpp.server", "--model", model, "--model_alias", "tiny", "--n_ctx", "8192"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--chat_format", "chatml-function-calling"]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(port), seconds=_START_SECONDS, what="the llama.cpp server answers")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(10)


def _answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False).status_code == 200
    except httpx2.HTTPError:
        return False


def call_llama(home: Path) -> None:
    """Make calls of every kind to a real server, and check what they are booked at."""
    with llama_server(home) as base_url, Postgres() as postgres, postgres.database() as ledger_url:
        ledger = Ledger(create_ledger_engine(ledger_url, pool_size=4))
        config = ProviderConfig.model_validate(
            {"api": "openai", "base_url": base_url, "api_key": "none", "label": "llama", "models": {HAIKU: "tiny"}}
        )
        with gateway_world(ledger, ledger_url, {"own": config}) as world:
            held = world.attempt()
            with world.client(held) as client:
                reply = client.create(["hello"], model=HAIKU, max_tokens=40, system="Be brief.")
                forced = client.tool_call(["a title"], model=HAIKU, max_tokens=200, tool=_TOOL)
            whole = anthropic.Anthropic(base_url=world.url, api_key=held.token, max_retries=0).messages.create(
                model=HAIKU, max_tokens=40, messages=[{"role": "user", "content": "hello"}]
            )
            wait_until(world.is_settled, seconds=10, what="every call is booked")
            calls = world.calls()
            world.check_books()
        ledger.close()
    assert reply.content, "no content came through the stream"
    assert forced.is_cut or set(forced.input) == {"title"}, forced
    assert whole.usage.input_tokens > 0
    assert [call.model for call in calls] == ["tiny"] * 3
    assert calls[2].state == "settled"
    assert all(0 < call.cost_nanousd <= call.reserved_nanousd for call in calls)
    for name, call in zip(("streamed text", "streamed tool", "unstreamed text"), calls, strict=True):
        print(f"{name:16} {call.state:9} {call.input_tokens:5} in {call.output_tokens:4} out  {call.cost_nanousd} n$")


def main() -> None:
    """Run everything."""
    began, right = time.monotonic(), True
    for dialect in ("bedrock", "vertex", "openai"):
        print(f"-- the cases through {dialect}", flush=True)
        right = run_cases(dialect) and right
    print("-- llama.cpp", flush=True)
    with TemporaryDirectory(prefix="pointsman-llama-") as home:
        call_llama(Path(home))
    print(f"{'all right' if right else 'NOT all right'}, {time.monotonic() - began:.0f} s")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
