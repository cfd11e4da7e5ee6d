"""The roles' real code on one log in memory, in virtual time, under faults drawn from a seed. See docs/simulation.md.

    links ──────── what a process reaches others through: slow, lossy, cut when it is killed
    stand_ins ──── the page, the policy, the evaluator and the arithmetic, where gradients and browsers would be
    processes ──── roles as processes: killed at any await, stopped, doubled, started again
    schedules ──── from a seed to settings, mishaps and a finished run
    invariants ─── what must hold of every run, by the names of docs/architecture.md
    sabotage ───── faults put in on purpose, and who must notice

One seed is one schedule, always the same: `PYTHONPATH=tests python -m simulation --seed 7`.
"""
