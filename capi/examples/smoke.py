"""The library from Python, by ctypes: python3 smoke.py LIBRARY.

A task that is Python must not wait: the interpreter keeps its own frames per thread, and other tasks of the thread would find them
in the wrong order. It needs a larger stack than C does.
"""
import ctypes
import sys

janus = ctypes.CDLL(sys.argv[1])


class Budget(ctypes.Structure):
    _fields_ = [("ops", ctypes.c_uint32), ("memory", ctypes.c_size_t), ("spawn_count", ctypes.c_uint16),
                ("channel_ops", ctypes.c_uint16), ("syscalls", ctypes.c_uint16)]


class Pool(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("ops", "memory", "spawn_count", "channel_ops", "syscalls")]


class Config(ctypes.Structure):
    _fields_ = [("worker_count", ctypes.c_uint32), ("profile", ctypes.c_uint32), ("deterministic", ctypes.c_uint32),
                ("caps", ctypes.c_uint32), ("deterministic_seed", ctypes.c_uint64), ("stack_size", ctypes.c_size_t),
                ("task_limit", ctypes.c_uint32), ("tenant_count", ctypes.c_uint32), ("tenant_weights", ctypes.c_void_p),
                ("child_budget", Budget), ("recharge_limit", Budget), ("root_pool", Pool), ("reserved", ctypes.c_uint64 * 4)]


class Result(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int32), ("reserved", ctypes.c_uint32), ("code", ctypes.c_int64), ("task_id", ctypes.c_uint64)]


Task = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
janus.janus_scheduler_config_default.restype = Config
janus.janus_scheduler_create.argtypes, janus.janus_scheduler_create.restype = [Config], ctypes.c_void_p
janus.janus_scheduler_shutdown.argtypes = [ctypes.c_void_p]
janus.janus_nursery_create.restype = ctypes.c_void_p
janus.janus_nursery_spawn.argtypes, janus.janus_nursery_spawn.restype = [ctypes.c_void_p, Task, ctypes.c_void_p], ctypes.c_void_p
janus.janus_nursery_await.argtypes, janus.janus_nursery_await.restype = [ctypes.c_void_p], Result
janus.janus_nursery_destroy.argtypes = [ctypes.c_void_p]
janus.janus_budget_get_current.restype = Budget
janus.janus_status_text.restype = ctypes.c_char_p

config = janus.janus_scheduler_config_default()
config.worker_count = 1
config.stack_size = 4 << 20
scheduler = janus.janus_scheduler_create(config)
assert scheduler, "no scheduler"
squares, left = [], []


@Task
def square(arg):
    left.append(janus.janus_budget_get_current().ops)
    squares.append((arg or 0) ** 2)
    return 0


@Task
def fail(_):
    return -3


nursery = janus.janus_nursery_create()
for number in range(1, 6):
    assert janus.janus_nursery_spawn(nursery, square, number)
result = janus.janus_nursery_await(nursery)
janus.janus_nursery_destroy(nursery)
print(sorted(squares), janus.janus_status_text(result.status).decode(), min(left) > 0)
nursery = janus.janus_nursery_create()
assert janus.janus_nursery_spawn(nursery, fail, None)
result = janus.janus_nursery_await(nursery)
print(janus.janus_status_text(result.status).decode(), result.code)
assert janus.janus_nursery_destroy(nursery) == 0
assert janus.janus_nursery_destroy(nursery) == 18
sys.exit(janus.janus_scheduler_shutdown(scheduler))
