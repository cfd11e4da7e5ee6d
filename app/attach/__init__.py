"""Attached consumers: a user's function or fold that reads a run's log without affecting the run.

A consumer is the object that `hindcast attach MODULE:NAME` names; it needs no base class and no registration:

    def consumer(event: Recorded, db: Connection) -> None     writes anything into `db`
    def prepare(db: Connection) -> None                       optional, same module: creates its tables at every start
    class Consumer: __call__(self, event, db), prepare        the same as a class or an instance
    class Fold:     initial(self) -> S                        pure: the state is kept for it
                    apply(self, state: S, event) -> S

`db` is a SQLAlchemy connection in a transaction that also stores the consumer's position: both are committed or neither, so
a kill -9 at any moment neither skips an event nor applies it twice. A fold's state is stored in the same way. Effects outside
the transaction (a mail, a webhook) may repeat after a crash: use the event's position as their key.
"""
