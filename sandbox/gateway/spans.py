"""A call in its job's trace, in the words of OpenTelemetry's conventions for generative AI: model, tokens and price.

Only the gateway's span of a call says what was used, as only the gateway meters: the cost of a trace's spans adds up to
the job's bill. Nothing of what was asked or answered is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from monitoring import traces
from routing.prices import Usage
from sandbox.gateway.admission import Admitted, Caller
from sandbox.gateway.body import CheckedBody
from sandbox.gateway.meter import Settlement
from sandbox.gateway.refusals import RefusedError

_COMPLETED = "completed"


@contextmanager
def trace_call(caller: Caller, body: CheckedBody) -> Iterator[None]:
    """Trace a call in the trace of the job that it is made for, wherever else its sender says that it belongs."""
    if not traces.is_on():
        yield
        return
    bearer = caller.bearer
    asked = caller.headers.get(b"traceparent", b"").decode("latin-1")
    facts: traces.Facts = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": caller.provider.label,
        "gen_ai.request.model": body.model, "gen_ai.request.max_tokens": body.max_tokens,
        "gen_ai.request.stream": body.streams, "pointsman.job.id": str(bearer.job_id),
        "pointsman.tenant": bearer.tenant,
    }  # fmt: skip
    trace = traces.within(bearer.trace, asked)
    with traces.of_job(f"chat {body.model}", trace, kind=traces.Kind.CLIENT, facts=facts):
        try:
            yield
        except RefusedError as refusal:
            traces.note({"error.type": refusal.code.value})
            raise


def note_settled(admitted: Admitted, settlement: Settlement) -> None:
    """Say what a call used, and what it is booked with."""
    if not traces.is_on():
        return
    usage: Usage = settlement.usage
    traces.note(
        {
            "gen_ai.response.model": admitted.body.model,
            # By the convention the input counts what came from a cache, too; a provider of the Messages API does not.
            "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "http.response.status_code": settlement.status or None,
            "error.type": _error_of(settlement),
            "pointsman.call.id": str(admitted.id),
            "pointsman.call.finish": settlement.finish,
            "pointsman.call.cost_nanousd": settlement.cost_nanousd,
            "pointsman.call.reserved_nanousd": admitted.reserved.nanousd,
        }
    )


def _error_of(settlement: Settlement) -> str | None:
    """Return what went wrong with a call: the provider's status where that says it, else how the call ended."""
    if settlement.finish == _COMPLETED:
        return None
    return str(settlement.status) if settlement.status >= HTTPStatus.BAD_REQUEST else settlement.finish
