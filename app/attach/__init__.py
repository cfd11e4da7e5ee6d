"""Other people's consumers: a function or a fold of one's own, run beside a system that does not notice it.

A consumer is what `hindcast attach MODULE:NAME` finds under that name; no base class, no registration:

    def consumer(event: Recorded, db: Connection) -> None     writes what it likes into `db`
    def prepare(db: Connection) -> None                       optional, beside it: its tables, once at every start
    class Consumer: __call__(self, event, db), prepare        the same as a class or an instance
    class Fold:     initial(self) -> S                        pure: the state is kept for it
                    apply(self, state: S, event) -> S

`db` is a SQLAlchemy connection in a transaction that also carries the consumer's position: both are kept or neither, so
a kill -9 at any moment neither skips an event nor applies it twice. A fold's state is kept in the same way. What leaves
the transaction (a mail, a webhook) may happen again after a crash: give it the event's position as its key.
"""
