"""The learner's process: takes segments from shared memory, learns, and puts weights back.

Started by `link.ProcessLink` as `python -m flatout.slow_envs.learner_process CONNECTION MEMORY`. It
yields to the environments wherever both want a core: their waits are what the run is made of. It
ends with its driver.
"""

import contextlib
import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from multiprocessing.connection import Connection

from flatout.slow_envs.learner_state import Assignment
from flatout.slow_envs.learning import Learning, Update
from flatout.slow_envs.link import (
    ChangeRule,
    LearnerFailed,
    MessageToLearner,
    PlacesFreed,
    SegmentFilled,
    SendState,
    WeightsCopied,
    WeightsPublished,
)
from flatout.slow_envs.shared_memory import SharedArrays
from flatout.slow_envs.tape import Segment
from flatout.slow_envs.torch_learner import new_learner, use_one_thread
from flatout.workers.lifeline import die_with_driver

GENTLE = 10  # niceness


def main() -> None:
    """Serve one driver until it lets go."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends its learner
    die_with_driver()
    os.nice(GENTLE)
    use_one_thread()
    connection = Connection(int(sys.argv[1]))
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            Server(connection, receive_assignment(connection), int(sys.argv[2])).serve()
        except Exception:  # sent to the driver, which raises it for the user
            connection.send(LearnerFailed(traceback.format_exc()))


def receive_assignment(connection: Connection) -> Assignment:
    """The assignment of the driver, whose modules are found where the driver finds them."""
    sys.path[:], assignment = connection.recv()
    return pickle.loads(assignment)


class Server:
    """Learns, and answers messages between updates."""

    def __init__(self, connection: Connection, assignment: Assignment, descriptor: int) -> None:
        self.connection = connection
        self.memory = SharedArrays(assignment.shapes(), descriptor)
        self.learner = new_learner(assignment)
        self.learning = Learning(self.learner, assignment.overlap)
        self.taken = self.learner.version  # newest weights that the driver has copied
        self.places: deque[int] = deque()  # of the ring, that hold segments which wait
        self.idle = 0.0

    def serve(self) -> None:
        """Learn while there is something to learn from, else wait for it."""
        while True:
            while self.connection.poll():
                self.handle_message(self.connection.recv())
            taken = self.learning.gather_batch()
            if taken:
                self.connection.send(
                    PlacesFreed(tuple(self.places.popleft() for _ in range(taken)))
                )
            update = self.learning.make_update()
            if update is not None:
                self.publish(update)
                continue
            begun = time.perf_counter()
            self.handle_message(self.connection.recv())
            self.idle += time.perf_counter() - begun

    def handle_message(self, message: MessageToLearner) -> None:
        """Do what a message of the driver asks."""
        if isinstance(message, SegmentFilled):
            self.learning.add_segment(
                Segment(*(self.memory[name][message.place] for name in Segment._fields))
            )
            self.places.append(message.place)
        elif isinstance(message, WeightsCopied):
            self.taken = message.version
        elif isinstance(message, ChangeRule):
            self.learner.change_rule(message.rule)
        elif isinstance(message, SendState):
            self.connection.send(self.learner.state)

    def publish(self, update: Update) -> None:
        """Put the weights where the driver finds them, once it has copied those that lay there."""
        while self.taken < update.version - 2:
            self.handle_message(self.connection.recv())
        self.memory["weights"][update.version % 2] = self.learner.vector
        self.connection.send(WeightsPublished(update, self.idle))
        self.idle = 0.0


if __name__ == "__main__":
    main()
