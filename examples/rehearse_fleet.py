"""Kill and bounce ten of 50 simulated brokers under a real controller: python examples/rehearse_fleet.py HOST:PORT"""

import sys

from channel import Fleet
from channel.rehearsal.fleet_steps import Step, rehearse, report_table

STEPS = ["kill random:10", "restart 100-149", "bounce random:10"]

with Fleet(sys.argv[1], range(100, 150), session_timeout_ms=6_000) as fleet:
    events = list(rehearse(fleet, [Step("wait", seconds=3.0), *map(Step.of, STEPS)], seed=1))
    print("\n".join(report_table(events)))
    sys.exit(not all(event.is_complete for event in events))
