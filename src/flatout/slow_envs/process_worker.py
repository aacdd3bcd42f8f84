"""A process that holds one plain environment and steps it when asked.

Started by `process_env.py` as `python -m flatout.slow_envs.process_worker SOCKET MEMORY PARENT
KIND`: two inherited file descriptors, the parent's process id, and whether its main thread started
this process. It makes the environment from what lies in the memory, says hello, and answers each
request with one message. It dies with its parent, also amid a step. It imports neither torch nor
jax: what the environment needs, its maker imports.
"""

import ctypes
import faulthandler
import mmap
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from contextlib import suppress
from socket import socket

import cloudpickle

from flatout.slow_envs.async_env import waits
from flatout.slow_envs.blocking import Blocking
from flatout.slow_envs.gymnasium_types import EnvInfo, PlainEnv, SpaceValue
from flatout.slow_envs.process_wire import (
    APPLY,
    CLOSE,
    FAILURE,
    HELLO,
    LAST_WORDS,
    RESET,
    RESULT,
    STEP,
    EnvFailure,
    Hello,
    Slots,
    bytes_of_slots,
    map_slots,
    read_value,
    receive,
    send,
    write_value,
)

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


def main() -> None:
    """Serve one parent until it lets go."""
    # Ctrl-C is for the parent, which ends its processes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    connection_number, memory_number, parent = (int(word) for word in sys.argv[1:4])
    die_with_parent(parent, connection_number, by_main_thread=sys.argv[4] == "main")
    connection = socket(fileno=connection_number)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            serve(connection, memory_number)
        except Exception as error:
            send(connection, FAILURE, pack_error(error))
        except BaseException:  # SystemExit of the environment, for one: it ends this process
            send(connection, LAST_WORDS, traceback.format_exc().encode())
            raise
    # The socket closes with the process: its end tells the parent that all is over.
    connection.detach()


def die_with_parent(parent: int, connection: int, by_main_thread: bool) -> None:
    """Have this process end when its parent does, whatever the environment is doing.

    Linux can do it even where C code holds the interpreter for ever, but counts the end of the
    *thread* that started this process: so it is asked only where that was the main one. The
    watching thread works everywhere.
    """
    if sys.platform == "linux" and by_main_thread:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=watch_parent, args=(parent, connection), daemon=True).start()


def watch_parent(parent: int, connection: int) -> None:
    """End the process once the parent has hung up or another process has adopted this one."""
    poll = select.poll()
    poll.register(connection, 0)  # no events: only that the other side hung up
    while os.getppid() == parent and not poll.poll(1000):
        pass
    os._exit(1)


def serve(connection: socket, memory_number: int) -> None:
    """Make the environment and answer requests until the parent has enough."""
    env = make_env(memory_number)
    try:
        os.ftruncate(memory_number, bytes_of_slots(env.observation_space, env.action_space))
        memory = mmap.mmap(memory_number, 0)
        slots = map_slots(memory, env.observation_space, env.action_space)
        hello = Hello(
            env.observation_space,
            env.action_space,
            getattr(env, "metadata", {}),
            render_mode_of(env),
        )
        send(connection, HELLO, cloudpickle.dumps(hello))
        while (request := receive(connection))[0] != CLOSE:
            send(connection, *answer_request(env, slots, *request))
    finally:
        env.close()
    send(connection, RESULT)


def make_env(memory_number: int) -> PlainEnv:
    """The environment, by the maker that the parent left in the memory."""
    with open(memory_number, "rb", closefd=False) as file:
        sys.path[:], maker = pickle.load(file)
    env = pickle.loads(maker)()
    return Blocking(env) if waits(env) else env


def render_mode_of(env: PlainEnv) -> str | None:
    """The environment's `render_mode`, or None if it has none."""
    return getattr(env, "render_mode", None)


def answer_request(env: PlainEnv, slots: Slots, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Do what was asked; an exception of the environment is an answer too."""
    try:
        if kind == STEP:
            return RESULT, step_env(env, slots, payload)
        if kind == RESET:
            seed, options = pickle.loads(payload)
            observation, info = env.reset(seed=seed, options=options)
            return RESULT, pack_observation(slots, observation, info)
        if kind == APPLY:
            return RESULT, cloudpickle.dumps(pickle.loads(payload)(env))
        raise AssertionError(f"unknown request {kind!r}")
    except Exception as error:
        return FAILURE, pack_error(error)


def step_env(env: PlainEnv, slots: Slots, payload: bytes) -> bytes:
    """One step with the action in its slot, or with the one that was sent."""
    action = pickle.loads(payload) if slots.action is None else read_value(slots.action)
    observation, reward, terminated, truncated, info = env.step(action)
    slots.reward[...] = reward
    slots.ended[:] = terminated, truncated
    return pack_observation(slots, observation, info)


def pack_observation(slots: Slots, observation: SpaceValue, info: EnvInfo) -> bytes:
    """Put the observation into its slot; what must be sent is the rest, most often nothing."""
    if slots.observation is None:
        return cloudpickle.dumps((observation, info))
    write_value(slots.observation, observation)
    return cloudpickle.dumps((None, info)) if info else b""


def pack_error(error: Exception) -> bytes:
    """An exception for the parent: itself if it survives pickling, and in any case its text."""
    message, text = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    try:
        whole = cloudpickle.dumps(error)
        pickle.loads(whole)
    except Exception as reason:  # its class may do anything then: the text must do
        whole, text = b"", f"{text}(the exception itself could not be sent: {reason})\n"
    return pickle.dumps(EnvFailure(error=whole, message=message, traceback=text))


if __name__ == "__main__":
    main()
