"""`python -m tests.box.worker ENGINE INSTALL [cache]`: a worker that has a box at work and a spare, until a kill."""

import sys
import threading

from routing.policy.services import ProjectService, services_of
from sandbox.config import BoxConfig
from sandbox.execution import Clocks
from sandbox.pool import build_pool, open_engine
from tests.box.service_images import OFFERS


def main() -> None:
    config = BoxConfig(engine=sys.argv[1], install=sys.argv[2], memory_mib=512, workspace_mib=64, mirror_port=8091)
    pool = build_pool(config, open_engine(config))
    wanted = {"cache": ProjectService(image="redis")} if "cache" in sys.argv else {}
    box = pool.acquire(services_of(wanted, OFFERS))
    pool.wait_until_filled(seconds=120)
    clocks = Clocks(soft_seconds=300, hard_seconds=300)
    threading.Thread(target=box.run, args=(["sleep", "300"],), kwargs={"clocks": clocks}, daemon=True).start()
    print("working", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
