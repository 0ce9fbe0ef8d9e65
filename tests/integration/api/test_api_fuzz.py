"""The HTTP API under generated requests, each against its own OpenAPI document: whatever comes, no answer is a 5xx."""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.integration.api.http_world import World, shared_ledger
from tests.integration.api.tenant_world import Belongings, furnished

__all__ = ["furnished", "shared_ledger"]

EXAMPLES = int(os.environ.get("EXAMPLES", "3"))
"""Requests for each operation."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def failures_of(operation: Any, furnished: tuple[World, Belongings], *, mode: GenerationMode) -> list[str]:
    """Send generated requests to one operation; name the shortest one whose answer the document does not describe."""
    world, has = furnished
    known: dict[str, list[Any]] = {
        "job_id": [str(job_id) for job_id in has.jobs],
        "gate_id": [str(has.gate)],
        "name": [has.site],
        "tenant": [world.tenant],
        "project": [has.project],
    }

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode), st.data())
    def send(case: schemathesis.Case, data: st.DataObject) -> None:
        for name in sorted(set(case.path_parameters) & set(known)):
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known[name]))
        case.call_and_validate(headers=world.headers(), checks=CHECKS)

    try:
        send()
    except Unsatisfiable:
        assert mode == GenerationMode.NEGATIVE  # nothing that it takes could be wrong
    except (AssertionError, BaseExceptionGroup) as error:
        return [f"{operation.label} ({mode.value}): {error}"]
    return []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_answer_is_one_that_the_document_describes(
    furnished: tuple[World, Belongings], mode: GenerationMode
) -> None:
    document = schemathesis.openapi.from_asgi("/openapi.json", furnished[0].app)
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 25
    failures = [failure for each in operations for failure in failures_of(each, furnished, mode=mode)]
    assert not failures, "\n".join(failures)
