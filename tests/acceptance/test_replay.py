"""Jobs replayed from recorded calls."""

import json
from pathlib import Path
from uuid import UUID

import psycopg

from tests.acceptance.conftest import NO_ENGINE, pointsman
from tests.acceptance.installation import Installation

BAKERY = Path(__file__).parents[2] / "producers" / "local" / "demo_site"


def test_a_recorded_job_is_replayed_bit_for_bit_and_a_changed_reply_shows(installation: Installation) -> None:
    environment = {**installation.embedded.environment, **NO_ENGINE}
    asked = installation.wait_for(installation.submit("What is a sourdough starter?"), "answered")
    code, _, said = pointsman("replay", "--recorded", asked["id"], environment=environment)
    assert (code, "no model call of it was recorded" in said) == (1, True)

    assert pointsman("tenant", "record", "demo", "7", environment=environment)[0] == 0
    assert pointsman("site", "import", "replayed", str(BAKERY), "--publish", environment=environment)[0] == 0
    request = "Change the price of the dark rye to €6.10 and of the walnut wreath to €7.90."
    jobs = [str(installation.submit(request, site="replayed"))]
    for text in ("Make the headline shorter.", "Add a section about our history."):
        installation.wait_for(UUID(jobs[-1]), "awaiting_approval")
        jobs.append(installation.http.post(f"/v1/jobs/{jobs[-1]}/revise", json={"text": text}).json()["id"])
    installation.wait_for(UUID(jobs[-1]), "awaiting_approval")
    assert pointsman("tenant", "record", "demo", "0", environment=environment)[0] == 0

    database = installation.embedded.environment["POINTSMAN_LEDGER__URL"].replace("+psycopg", "")
    with psycopg.connect(database, autocommit=True) as ledger:
        ((call, reply),) = ledger.execute(
            "SELECT id, reply FROM recorded_call WHERE job_id = %s", (jobs[1],)
        ).fetchall()
        message = json.loads(reply)
        message["content"][0]["input"]["summary"] = "Something else was done."
        ledger.execute("UPDATE recorded_call SET reply = %s WHERE id = %s", (json.dumps(message), call))
        ((size,),) = ledger.execute("SELECT result -> 'output_bytes' FROM job WHERE id = %s", (jobs[1],)).fetchall()
        lower = json.dumps({"queues": {"spec": {"output_bytes": size}}})
        ledger.execute("UPDATE tenant SET overrides = %s", (lower,))
        code, replayed, said = pointsman("replay", "--recorded", jobs[-1], environment=environment)
        ledger.execute("UPDATE tenant SET overrides = '{}'")
    assert [step["job"] for step in replayed["steps"]] == jobs, said
    same, otherwise, (over_its_limit,) = [step["differences"] for step in replayed["steps"]]
    assert (same, otherwise) == ([], ["it says something else"])
    assert over_its_limit.startswith("came to output_exceeded, not awaiting_approval"), "today's limits hold"
    assert (code, replayed["is_same"]) == (1, False)
