"""`PYTHONPATH=tests python -m simulation --seed 7` repeats one schedule; `--seeds 0:2000` plays many and says how fast."""

import argparse
import sys
import time

from simulation.invariants import check
from simulation.schedules import play, stage


def main() -> int:
    arguments = argparse.ArgumentParser(prog="simulation", description=__doc__)
    arguments.add_argument("--seed", type=int, help="one schedule; prints the log it left")
    arguments.add_argument("--seeds", default="0:200", help="from:to")
    chosen = arguments.parse_args()
    first, end = map(int, chosen.seeds.split(":"))
    seeds = range(first, end) if chosen.seed is None else [chosen.seed]
    failed, events, turns = 0, 0, 0
    with stage() as folder:
        began = time.process_time()
        for seed in seeds:
            try:
                outcome = play(seed, folder)
                if chosen.seed is not None:
                    for recorded in outcome.history:
                        print(recorded.position, recorded.envelope.incarnation, recorded.fact)
                check(outcome)
            except Exception as error:  # counted, and the next seed played
                failed += 1
                print(f"seed {seed}: {type(error).__name__}: {error}")
                if chosen.seed is not None:
                    raise
            else:
                events, turns = events + len(outcome.history), turns + outcome.turns
        spent_s = time.process_time() - began
    print(
        f"{len(seeds)} schedules, {failed} failed, {events} events, {turns} callbacks, {spent_s:.1f} s of one core, "
        f"{len(seeds) / spent_s:.0f} schedules/s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
