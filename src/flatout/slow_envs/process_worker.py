"""A process that holds one plain environment and steps it when told.

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
from typing import Any

import cloudpickle

from flatout.slow_envs.async_env import waits
from flatout.slow_envs.blocking import Blocking
from flatout.slow_envs.process_wire import (
    APPLY,
    CLOSE,
    FAILURE,
    HELLO,
    LAST_WORDS,
    RESET,
    RESULT,
    STEP,
    Failure,
    Hello,
    Slots,
    read,
    receive,
    send,
    slots_in,
    whole_room,
    write,
)

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


def main() -> None:
    """Serve one parent until it lets go."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the parent, which ends its processes
    faulthandler.enable()
    door_number, memory_number, parent = (int(word) for word in sys.argv[1:4])
    die_with(parent, door_number, by_main_thread=sys.argv[4] == "main")
    door = socket(fileno=door_number)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        try:
            serve(door, memory_number)
        except Exception as error:
            send(door, FAILURE, packed(error))
        except BaseException:  # SystemExit of the environment, for one: it ends this process
            send(door, LAST_WORDS, traceback.format_exc().encode())
            raise
    door.detach()  # the socket closes with the process: its end tells the parent that all is over


def die_with(parent: int, door: int, by_main_thread: bool) -> None:
    """Have this process end when its parent does, whatever the environment is doing.

    Linux can do it even where C code holds the interpreter for ever, but counts the end of the
    *thread* that started this process: so it is asked only where that was the main one. The
    watching thread works everywhere.
    """
    if sys.platform == "linux" and by_main_thread:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=watch, args=(parent, door), daemon=True).start()


def watch(parent: int, door: int) -> None:
    """End the process once the parent has hung up or another process has adopted this one."""
    poll = select.poll()
    poll.register(door, 0)  # no events: only that the other side hung up
    while os.getppid() == parent and not poll.poll(1000):
        pass
    os._exit(1)


def serve(door: socket, memory_number: int) -> None:
    """Make the environment and answer requests until the parent has enough."""
    env = make(memory_number)
    try:
        os.ftruncate(memory_number, whole_room(env.observation_space, env.action_space))
        memory = mmap.mmap(memory_number, 0)
        slots = slots_in(memory, env.observation_space, env.action_space)
        hello = Hello(
            env.observation_space, env.action_space, getattr(env, "metadata", {}), render_mode(env)
        )
        send(door, HELLO, cloudpickle.dumps(hello))
        while (request := receive(door))[0] != CLOSE:
            send(door, *answer(env, slots, *request))
    finally:
        env.close()
    send(door, RESULT)


def make(memory_number: int) -> Any:
    """The environment, by the maker that the parent left in the memory."""
    with open(memory_number, "rb", closefd=False) as file:
        sys.path[:], maker = pickle.load(file)
    env = pickle.loads(maker)()
    return Blocking(env) if waits(env) else env


def render_mode(env: Any) -> str | None:
    """How it draws, if it says so."""
    return getattr(env, "render_mode", None)


def answer(env: Any, slots: Slots, kind: bytes, payload: bytes) -> tuple[bytes, bytes]:
    """Do what was asked; an exception of the environment is an answer too."""
    try:
        if kind == STEP:
            return RESULT, step(env, slots, payload)
        if kind == RESET:
            seed, options = pickle.loads(payload)
            observation, info = env.reset(seed=seed, options=options)
            return RESULT, told(slots, observation, info)
        if kind == APPLY:
            return RESULT, cloudpickle.dumps(pickle.loads(payload)(env))
        raise AssertionError(f"unknown request {kind!r}")
    except Exception as error:
        return FAILURE, packed(error)


def step(env: Any, slots: Slots, payload: bytes) -> bytes:
    """One step with the action in its slot, or with the one that was sent."""
    action = pickle.loads(payload) if slots.action is None else read(slots.action)
    observation, reward, terminated, truncated, info = env.step(action)
    slots.reward[...] = reward
    slots.ended[:] = terminated, truncated
    return told(slots, observation, info)


def told(slots: Slots, observation: Any, info: dict[str, Any]) -> bytes:
    """Put the observation into its slot; what must be sent is the rest, most often nothing."""
    if slots.observation is None:
        return cloudpickle.dumps((observation, info))
    write(slots.observation, observation)
    return cloudpickle.dumps((None, info)) if info else b""


def packed(error: Exception) -> bytes:
    """An exception for the parent: itself if it survives pickling, and in any case its text."""
    said, text = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    try:
        whole = cloudpickle.dumps(error)
        pickle.loads(whole)
    except Exception as reason:  # its class may do anything then: the text must do
        whole, text = b"", f"{text}(the exception itself could not be sent: {reason})\n"
    return pickle.dumps(Failure(whole, said, text))


if __name__ == "__main__":
    main()
