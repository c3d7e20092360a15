/* Budgeted tasks, nurseries and channels for C. Made from capi/src; do not edit:
   MAINSPRING_BLESS=1 cargo test -p mainspring-capi --test capi header. The guide is docs/capi.md. */
#ifndef MAINSPRING_H
#define MAINSPRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define JANUS_LAYOUT static_assert
extern "C" {
#else
#define JANUS_LAYOUT _Static_assert
#endif


/* A scheduler. Null is none. */
typedef struct janus_scheduler_s *janus_scheduler;

/* A nursery. Null is none. */
typedef struct janus_nursery_s *janus_nursery;

/* A task, for the owner of its nursery. Null is none. */
typedef struct janus_task_s *janus_task;

/* A channel of 64-bit words. Null is none. */
typedef struct janus_channel_s *janus_channel;

/* Where tasks call and others serve. Null is none. */
typedef struct janus_endpoint_s *janus_endpoint;

/* A call that a task has taken and not answered. Null is none. */
typedef struct janus_call_s *janus_call;

/* CPU time in every period. Null is none. */
typedef struct janus_context_s *janus_context;

/* A rate that tasks share. Null is none. */
typedef struct janus_quota_s *janus_quota;

/* What a task runs. A result below 0 is an error: it fails the task's nursery, and cancels its siblings. */
typedef int64_t (*janus_task_fn)(void *arg);

/* What one task may still use. 0 is exhausted. */
typedef struct janus_budget {
    /* Abstract operations. */
    uint32_t ops;
    /* Bytes. */
    size_t memory;
    /* Children. */
    uint16_t spawn_count;
    /* Sends and receives. */
    uint16_t channel_ops;
    /* File and network operations. */
    uint16_t syscalls;
} janus_budget;
JANUS_LAYOUT(sizeof(janus_budget) == 24, "janus_budget");
JANUS_LAYOUT(offsetof(janus_budget, ops) == 0, "janus_budget.ops");
JANUS_LAYOUT(offsetof(janus_budget, memory) == 8, "janus_budget.memory");
JANUS_LAYOUT(offsetof(janus_budget, spawn_count) == 16, "janus_budget.spawn_count");
JANUS_LAYOUT(offsetof(janus_budget, channel_ops) == 18, "janus_budget.channel_ops");
JANUS_LAYOUT(offsetof(janus_budget, syscalls) == 20, "janus_budget.syscalls");

/* What a nursery may still hand out. */
typedef struct janus_pool {
    /* Abstract operations. */
    uint64_t ops;
    /* Bytes. */
    uint64_t memory;
    /* Children, and the children of children. */
    uint64_t spawn_count;
    /* Sends and receives. */
    uint64_t channel_ops;
    /* File and network operations. */
    uint64_t syscalls;
} janus_pool;
JANUS_LAYOUT(sizeof(janus_pool) == 40, "janus_pool");
JANUS_LAYOUT(offsetof(janus_pool, ops) == 0, "janus_pool.ops");
JANUS_LAYOUT(offsetof(janus_pool, memory) == 8, "janus_pool.memory");
JANUS_LAYOUT(offsetof(janus_pool, spawn_count) == 16, "janus_pool.spawn_count");
JANUS_LAYOUT(offsetof(janus_pool, channel_ops) == 24, "janus_pool.channel_ops");
JANUS_LAYOUT(offsetof(janus_pool, syscalls) == 32, "janus_pool.syscalls");
/* Implicit capabilities and default budgets. */
#define JANUS_PROFILE_SERVICE 1u
/* Larger defaults; owners may recharge their children beyond the nursery's pool. */
#define JANUS_PROFILE_CLUSTER 2u
/* Nothing that was not granted. */
#define JANUS_PROFILE_SOVEREIGN 3u
/* The capabilities that the profile implies. */
#define JANUS_CAPS_OF_PROFILE 0u
/* To spawn tasks. */
#define JANUS_CAP_SPAWN 1u
/* To recharge oneself, and in a sovereign program to choose budgets. */
#define JANUS_CAP_BUDGET 2u
/* To make channels. */
#define JANUS_CAP_CHANNEL 4u
/* To make scheduling contexts. */
#define JANUS_CAP_CONTEXT 16u
/* None of the capabilities. */
#define JANUS_CAPS_NONE 8u
/* Workers are threads, and their order is the host's. */
#define JANUS_ORDER_FREE 0u
/* Virtual workers in one thread, whose order is a function of the seed and of the number of workers. */
#define JANUS_ORDER_SEEDED 1u
/* The same, and tasks that all wait for each other fail. No thread may be about to wake them then. */
#define JANUS_ORDER_SEEDED_DEADLOCK_FAILS 2u

/* How a scheduler is set up. Start from janus_scheduler_config_default. */
typedef struct janus_scheduler_config {
    /* Worker threads, 1 to 1024. */
    uint32_t worker_count;
    /* One of JANUS_PROFILE_. */
    uint32_t profile;
    /* One of JANUS_ORDER_. */
    uint32_t deterministic;
    /* JANUS_CAP_ bits that root tasks get. */
    uint32_t caps;
    /* The seed, where the order is seeded. */
    uint64_t deterministic_seed;
    /* Bytes of a task's stack; 0 for the usual 112 KiB. */
    size_t stack_size;
    /* With caps: how many children of a nursery may be alive. */
    uint32_t task_limit;
    /* How many tenants share the workers; 0 for no fair discipline. */
    uint32_t tenant_count;
    /* The weights of the tenants, tenant_count of them, 1 to 65535 each. */
    const uint32_t *tenant_weights;
    /* With caps: the most that a child gets, and what it gets by default. */
    janus_budget child_budget;
    /* With JANUS_CAP_BUDGET: what a root task may draw by it in all. */
    janus_budget recharge_limit;
    /* What all tasks together may use; all zero for ample. */
    janus_pool root_pool;
    /* How many scheduling contexts there can be at a time; 0 for none. Not together with tenants. */
    uint32_t context_count;
    /* The CPU time that contexts may have in all, in millionths of a worker. */
    uint32_t context_share_ppm;
    /* 0. */
    uint64_t reserved[3];
} janus_scheduler_config;
JANUS_LAYOUT(sizeof(janus_scheduler_config) == 168, "janus_scheduler_config");
JANUS_LAYOUT(offsetof(janus_scheduler_config, worker_count) == 0, "janus_scheduler_config.worker_count");
JANUS_LAYOUT(offsetof(janus_scheduler_config, profile) == 4, "janus_scheduler_config.profile");
JANUS_LAYOUT(offsetof(janus_scheduler_config, deterministic) == 8, "janus_scheduler_config.deterministic");
JANUS_LAYOUT(offsetof(janus_scheduler_config, caps) == 12, "janus_scheduler_config.caps");
JANUS_LAYOUT(offsetof(janus_scheduler_config, deterministic_seed) == 16, "janus_scheduler_config.deterministic_seed");
JANUS_LAYOUT(offsetof(janus_scheduler_config, stack_size) == 24, "janus_scheduler_config.stack_size");
JANUS_LAYOUT(offsetof(janus_scheduler_config, task_limit) == 32, "janus_scheduler_config.task_limit");
JANUS_LAYOUT(offsetof(janus_scheduler_config, tenant_count) == 36, "janus_scheduler_config.tenant_count");
JANUS_LAYOUT(offsetof(janus_scheduler_config, tenant_weights) == 40, "janus_scheduler_config.tenant_weights");
JANUS_LAYOUT(offsetof(janus_scheduler_config, child_budget) == 48, "janus_scheduler_config.child_budget");
JANUS_LAYOUT(offsetof(janus_scheduler_config, recharge_limit) == 72, "janus_scheduler_config.recharge_limit");
JANUS_LAYOUT(offsetof(janus_scheduler_config, root_pool) == 96, "janus_scheduler_config.root_pool");
JANUS_LAYOUT(offsetof(janus_scheduler_config, context_count) == 136, "janus_scheduler_config.context_count");
JANUS_LAYOUT(offsetof(janus_scheduler_config, context_share_ppm) == 140, "janus_scheduler_config.context_share_ppm");
JANUS_LAYOUT(offsetof(janus_scheduler_config, reserved) == 144, "janus_scheduler_config.reserved");
/* A child that runs out draws on the nursery's pool, and fails when that is empty. */
#define JANUS_EXHAUSTED_REFILL 0u
/* A child that runs out fails. */
#define JANUS_EXHAUSTED_FAIL 1u
/* A child that runs out waits for janus_task_recharge. */
#define JANUS_EXHAUSTED_PARK 2u
/* A child that runs out ends alone, as cancelled. */
#define JANUS_EXHAUSTED_CANCEL 3u

/* How a nursery is opened. All zero is the default. */
typedef struct janus_nursery_options {
    /* Not 0: pool says what the nursery takes from its opener. Otherwise it takes half. */
    uint32_t has_pool;
    /* One of JANUS_EXHAUSTED_. */
    uint32_t on_exhausted;
    /* The pool. */
    janus_pool pool;
    /* The nursery is cancelled after so long; 0 for never. */
    uint64_t deadline_ns;
    /* 0. */
    uint64_t reserved[2];
} janus_nursery_options;
JANUS_LAYOUT(sizeof(janus_nursery_options) == 72, "janus_nursery_options");
JANUS_LAYOUT(offsetof(janus_nursery_options, has_pool) == 0, "janus_nursery_options.has_pool");
JANUS_LAYOUT(offsetof(janus_nursery_options, on_exhausted) == 4, "janus_nursery_options.on_exhausted");
JANUS_LAYOUT(offsetof(janus_nursery_options, pool) == 8, "janus_nursery_options.pool");
JANUS_LAYOUT(offsetof(janus_nursery_options, deadline_ns) == 48, "janus_nursery_options.deadline_ns");
JANUS_LAYOUT(offsetof(janus_nursery_options, reserved) == 56, "janus_nursery_options.reserved");

/* How a task is spawned. All zero is the default. */
typedef struct janus_spawn_options {
    /* Not 0: budget is the child's, and a bound. */
    uint32_t has_budget;
    /* Not 0: pool is for the nurseries that the child opens. */
    uint32_t has_pool;
    /* JANUS_CAP_ bits of what the child gets of its nursery's capabilities; 0 for the usual. */
    uint32_t caps;
    /* The tenant whose share the child uses, counted from 1; 0 for its spawner's. */
    uint32_t tenant;
    /* The budget. */
    janus_budget budget;
    /* The pool. */
    janus_pool pool;
    /* With JANUS_CAP_BUDGET: what the child may draw in all. */
    janus_budget recharge_limit;
    /* Bytes of stack; 0 for the scheduler's. */
    size_t stack_size;
    /* The scheduling context that the child runs on; null for none. */
    janus_context context;
    /* The quota that the child shares; null for its spawner's. */
    janus_quota quota;
    /* With JANUS_CAP_CONTEXT: how many contexts the child may make. */
    uint32_t context_count;
    /* With JANUS_CAP_CONTEXT: the CPU time that these may have in all, in millionths of a worker. */
    uint32_t context_share_ppm;
    /* 0. */
    uint64_t reserved[2];
} janus_spawn_options;
JANUS_LAYOUT(sizeof(janus_spawn_options) == 152, "janus_spawn_options");
JANUS_LAYOUT(offsetof(janus_spawn_options, has_budget) == 0, "janus_spawn_options.has_budget");
JANUS_LAYOUT(offsetof(janus_spawn_options, has_pool) == 4, "janus_spawn_options.has_pool");
JANUS_LAYOUT(offsetof(janus_spawn_options, caps) == 8, "janus_spawn_options.caps");
JANUS_LAYOUT(offsetof(janus_spawn_options, tenant) == 12, "janus_spawn_options.tenant");
JANUS_LAYOUT(offsetof(janus_spawn_options, budget) == 16, "janus_spawn_options.budget");
JANUS_LAYOUT(offsetof(janus_spawn_options, pool) == 40, "janus_spawn_options.pool");
JANUS_LAYOUT(offsetof(janus_spawn_options, recharge_limit) == 80, "janus_spawn_options.recharge_limit");
JANUS_LAYOUT(offsetof(janus_spawn_options, stack_size) == 104, "janus_spawn_options.stack_size");
JANUS_LAYOUT(offsetof(janus_spawn_options, context) == 112, "janus_spawn_options.context");
JANUS_LAYOUT(offsetof(janus_spawn_options, quota) == 120, "janus_spawn_options.quota");
JANUS_LAYOUT(offsetof(janus_spawn_options, context_count) == 128, "janus_spawn_options.context_count");
JANUS_LAYOUT(offsetof(janus_spawn_options, context_share_ppm) == 132, "janus_spawn_options.context_share_ppm");
JANUS_LAYOUT(offsetof(janus_spawn_options, reserved) == 136, "janus_spawn_options.reserved");

/* How a nursery ended. */
typedef struct janus_nursery_result {
    /* JANUS_OK, or of the first child that failed. */
    int32_t status;
    /* 0. */
    uint32_t reserved;
    /* What the first child that failed returned, with JANUS_TASK_FAILED. */
    int64_t code;
    /* The number of the child that failed; 0 if it was none. */
    uint64_t task_id;
} janus_nursery_result;
JANUS_LAYOUT(sizeof(janus_nursery_result) == 24, "janus_nursery_result");
JANUS_LAYOUT(offsetof(janus_nursery_result, status) == 0, "janus_nursery_result.status");
JANUS_LAYOUT(offsetof(janus_nursery_result, reserved) == 4, "janus_nursery_result.reserved");
JANUS_LAYOUT(offsetof(janus_nursery_result, code) == 8, "janus_nursery_result.code");
JANUS_LAYOUT(offsetof(janus_nursery_result, task_id) == 16, "janus_nursery_result.task_id");
/* Not started, or woken. */
#define JANUS_TASK_READY 0u
/* On a worker. */
#define JANUS_TASK_RUNNING 1u
/* Waits. */
#define JANUS_TASK_BLOCKED 2u
/* Waits for budget. */
#define JANUS_TASK_BUDGET_EXHAUSTED 3u
/* Returned. */
#define JANUS_TASK_COMPLETED 4u
/* Ended otherwise. */
#define JANUS_TASK_CANCELLED 5u
/* Without a limit of time. */
#define JANUS_FOREVER UINT64_MAX
/* A task that has used its context up waits for the refill. */
#define JANUS_DEPLETED_THROTTLE 0u
/* It goes on as a task without a context until the refill. */
#define JANUS_DEPLETED_BEST_EFFORT 1u
/* Any worker. */
#define JANUS_ANY_WORKER 4294967295u

/* CPU time that is asked for: so much in every period. */
typedef struct janus_reservation {
    /* CPU time per period. */
    uint64_t budget_ns;
    /* The period. */
    uint64_t period_ns;
    /* How soon after its release the budget is to be had; 0 for the end of the period. */
    uint64_t deadline_ns;
    /* One of JANUS_DEPLETED_. */
    uint32_t depleted;
    /* The worker where the time is set aside, or JANUS_ANY_WORKER. */
    uint32_t worker;
    /* 0. */
    uint64_t reserved[2];
} janus_reservation;
JANUS_LAYOUT(sizeof(janus_reservation) == 48, "janus_reservation");
JANUS_LAYOUT(offsetof(janus_reservation, budget_ns) == 0, "janus_reservation.budget_ns");
JANUS_LAYOUT(offsetof(janus_reservation, period_ns) == 8, "janus_reservation.period_ns");
JANUS_LAYOUT(offsetof(janus_reservation, deadline_ns) == 16, "janus_reservation.deadline_ns");
JANUS_LAYOUT(offsetof(janus_reservation, depleted) == 24, "janus_reservation.depleted");
JANUS_LAYOUT(offsetof(janus_reservation, worker) == 28, "janus_reservation.worker");
JANUS_LAYOUT(offsetof(janus_reservation, reserved) == 32, "janus_reservation.reserved");
/* With nobody: it can be bound. */
#define JANUS_PLACE_AT_REST 0u
/* With the task that it is bound to. */
#define JANUS_PLACE_BOUND 1u
/* With a task that serves a call of the task that it is bound to. */
#define JANUS_PLACE_LENT 2u
/* On its way to a task. */
#define JANUS_PLACE_IN_FLIGHT 3u

/* What is known of a context. */
typedef struct janus_context_info {
    /* CPU time per period. */
    uint64_t budget_ns;
    /* The period. */
    uint64_t period_ns;
    /* How soon after its release the budget is to be had. */
    uint64_t deadline_ns;
    /* How much can be used now in one go. */
    uint64_t remaining_ns;
    /* CPU time used in all, up to the last event. */
    uint64_t used_ns;
    /* The part of it that was used on loan. */
    uint64_t used_on_loan_ns;
    /* The furthest that anybody ran past the budget. */
    uint64_t overshoot_ns;
    /* How often it was used up. */
    uint64_t depletions;
    /* How many releases were not done with by their deadline. */
    uint64_t misses;
    /* The worker where its time is set aside. */
    uint32_t worker;
    /* One of JANUS_PLACE_. */
    uint32_t place;
} janus_context_info;
JANUS_LAYOUT(sizeof(janus_context_info) == 80, "janus_context_info");
JANUS_LAYOUT(offsetof(janus_context_info, budget_ns) == 0, "janus_context_info.budget_ns");
JANUS_LAYOUT(offsetof(janus_context_info, period_ns) == 8, "janus_context_info.period_ns");
JANUS_LAYOUT(offsetof(janus_context_info, deadline_ns) == 16, "janus_context_info.deadline_ns");
JANUS_LAYOUT(offsetof(janus_context_info, remaining_ns) == 24, "janus_context_info.remaining_ns");
JANUS_LAYOUT(offsetof(janus_context_info, used_ns) == 32, "janus_context_info.used_ns");
JANUS_LAYOUT(offsetof(janus_context_info, used_on_loan_ns) == 40, "janus_context_info.used_on_loan_ns");
JANUS_LAYOUT(offsetof(janus_context_info, overshoot_ns) == 48, "janus_context_info.overshoot_ns");
JANUS_LAYOUT(offsetof(janus_context_info, depletions) == 56, "janus_context_info.depletions");
JANUS_LAYOUT(offsetof(janus_context_info, misses) == 64, "janus_context_info.misses");
JANUS_LAYOUT(offsetof(janus_context_info, worker) == 72, "janus_context_info.worker");
JANUS_LAYOUT(offsetof(janus_context_info, place) == 76, "janus_context_info.place");

/* What has happened to a context since it was last asked. */
typedef struct janus_context_notices {
    /* How often its budget was used up. */
    uint32_t depleted;
    /* How often a deadline passed. */
    uint32_t late;
} janus_context_notices;
JANUS_LAYOUT(sizeof(janus_context_notices) == 8, "janus_context_notices");
JANUS_LAYOUT(offsetof(janus_context_notices, depleted) == 0, "janus_context_notices.depleted");
JANUS_LAYOUT(offsetof(janus_context_notices, late) == 4, "janus_context_notices.late");
/* A task that needs what its quota does not have now waits for it. */
#define JANUS_EMPTY_THROTTLE 0u
/* It is refused. */
#define JANUS_EMPTY_FAIL 1u

/* So much in every period. What is 0 is not limited. */
typedef struct janus_rate {
    /* The period, up to an hour. */
    uint64_t period_ns;
    /* One of JANUS_EMPTY_. */
    uint32_t when_empty;
    /* 0. */
    uint32_t reserved;
    /* What may be used in a period. */
    janus_pool limit;
    /* What may be used at once; 0 for all of it. */
    janus_pool burst;
} janus_rate;
JANUS_LAYOUT(sizeof(janus_rate) == 96, "janus_rate");
JANUS_LAYOUT(offsetof(janus_rate, period_ns) == 0, "janus_rate.period_ns");
JANUS_LAYOUT(offsetof(janus_rate, when_empty) == 8, "janus_rate.when_empty");
JANUS_LAYOUT(offsetof(janus_rate, reserved) == 12, "janus_rate.reserved");
JANUS_LAYOUT(offsetof(janus_rate, limit) == 16, "janus_rate.limit");
JANUS_LAYOUT(offsetof(janus_rate, burst) == 56, "janus_rate.burst");

/* It is done. */
#define JANUS_OK 0
/* The task, or the nursery around it, was cancelled: it should return soon. */
#define JANUS_CANCELLED 1
/* The task has used up its budget: recharge it, or return. */
#define JANUS_BUDGET_EXHAUSTED 2
/* The nursery's pool pays for no further child. */
#define JANUS_SPAWN_BUDGET_EXHAUSTED 3
/* Too little memory is left in the budget. */
#define JANUS_MEMORY_BUDGET_EXHAUSTED 4
/* There is no nursery, or it takes no more tasks. */
#define JANUS_NURSERY_NOT_ACTIVE 5
/* The capability is missing. */
#define JANUS_NOT_PERMITTED 6
/* More than the capability allows. */
#define JANUS_OVER_LIMIT 7
/* More than the pool has. */
#define JANUS_POOL_EXHAUSTED 8
/* The task returned an error. */
#define JANUS_TASK_FAILED 9
/* The task panicked. */
#define JANUS_PANICKED 10
/* The task had too little stack. */
#define JANUS_STACK_OVERFLOW 11
/* The nursery's deadline passed. */
#define JANUS_DEADLINE_EXCEEDED 12
/* All tasks wait for each other; the deterministic mode tells. */
#define JANUS_DEADLOCK 13
/* The channel is closed. */
#define JANUS_CLOSED 14
/* It would have had to wait. */
#define JANUS_WOULD_BLOCK 15
/* Time was over. */
#define JANUS_TIMED_OUT 16
/* Null, or not a handle of this kind. */
#define JANUS_INVALID_HANDLE 17
/* What the handle named is gone. */
#define JANUS_STALE_HANDLE 18
/* It belongs to another task or thread. */
#define JANUS_NOT_OWNER 19
/* Only a task can do that. */
#define JANUS_NOT_A_TASK 20
/* A task must not do that. */
#define JANUS_IN_TASK 21
/* A task ends its nurseries from the inside out. */
#define JANUS_NOT_INNERMOST 22
/* A value that makes no sense. */
#define JANUS_INVALID_ARGUMENT 23
/* The scheduler is shut down. */
#define JANUS_SHUT_DOWN 24
/* A call of the same thread is under way. */
#define JANUS_BUSY 25
/* Memory, threads, stacks or handles ran out. */
#define JANUS_NO_MEMORY 26
/* A task returned while a nursery of its own was open. */
#define JANUS_NURSERY_LEFT_OPEN 27
/* The task was never granted any of that. */
#define JANUS_NEVER_GRANTED 28
/* A mistake of the library's. */
#define JANUS_INTERNAL 29
/* The task that took the call ended without an answer. */
#define JANUS_SERVER_GONE 30
/* Some deadline would not hold. */
#define JANUS_NOT_ADMITTED 31
/* The context was taken away for good. */
#define JANUS_REVOKED 32
/* Another task has it or waits for it, or the task has one already. */
#define JANUS_IN_USE 33
/* The time is on another worker. */
#define JANUS_ELSEWHERE 34
/* The quota has less now. */
#define JANUS_OVER_RATE 35
/* The process is the child of a fork, and the schedulers are its parent's. */
#define JANUS_FORKED 36

/* What a status says, in English. The text is never null and lives as long as the library. */
const char *janus_status_text(int32_t status);

/* The service profile, with one worker per core. */
janus_scheduler_config janus_scheduler_config_default(void);

/* Makes a scheduler. Null if that fails: janus_error_text says why. It is the current one of the calling thread, if that has
   none. Not for tasks.
   The caller promises:
   config.tenant_weights is null or has config.tenant_count elements. */
janus_scheduler janus_scheduler_create(janus_scheduler_config config);

/* Makes the scheduler the one that the calling thread's nurseries are of; null for the default one. Not for tasks. */
int32_t janus_scheduler_enter(janus_scheduler scheduler);

/* Cancels all that runs on the scheduler, waits until it has ended, and stops the workers. Nurseries that threads have open there
   end as cancelled. Not for tasks. */
int32_t janus_scheduler_shutdown(janus_scheduler scheduler);

/* Runs function as a root task and waits for it. result, if not null, gets what it returned. Not for tasks, which open
   nurseries.
   The caller promises:
   function may be called with arg on another thread, and must not throw. result is null or can be written to. */
int32_t janus_scheduler_run(janus_scheduler scheduler, janus_task_fn function, void *arg, int64_t *result);

/* Where the order is seeded: a hash of the order of all dispatches and steals so far, and how many there were.
   The caller promises:
   hash and count are null or can be written to. */
int32_t janus_scheduler_trace(janus_scheduler scheduler, uint64_t *hash, uint64_t *count);

/* How many workers the scheduler has; 0 if there is no such scheduler. */
uint32_t janus_scheduler_workers(janus_scheduler scheduler);

/* Copies the text of the last error of the calling task or thread, cut to fit and ended by a 0. Returns the length of the whole
   text.
   The caller promises:
   text is null or has room for size bytes. */
size_t janus_error_text(char *text, size_t size);

/* Opens a nursery of the calling task, or of the calling thread on its current scheduler. Null if that fails. */
janus_nursery janus_nursery_create(void);

/* As janus_nursery_create, with options.
   The caller promises:
   options is null, which is the default, or can be read. */
janus_nursery janus_nursery_create_with(const janus_nursery_options *options);

/* Spawns a task into the nursery. Null if that fails. For the nursery's owner.
   The caller promises:
   function may be called with arg on another thread until the nursery has ended, and must not throw. */
janus_task janus_nursery_spawn(janus_nursery nursery, janus_task_fn function, void *arg);

/* As janus_nursery_spawn, with options.
   The caller promises:
   As for janus_nursery_spawn. options is null, which is the default, or can be read. */
janus_task janus_nursery_spawn_with(janus_nursery nursery, janus_task_fn function, void *arg, const janus_spawn_options *options);

/* Spawns a task into the innermost open nursery of the calling task or thread. Nobody gets its result but the nursery.
   The caller promises:
   As for janus_nursery_spawn. */
int32_t janus_scheduler_spawn(janus_task_fn function, void *arg);

/* Waits for all tasks of the nursery and ends it. It takes no more tasks. A task ends its nurseries from the inside out. If a task
   failed, janus_error_text says how. A second call gives the same result. */
janus_nursery_result janus_nursery_await(janus_nursery nursery);

/* Ends the nursery if it has not ended, and gives its handle back. The status is about the handle: how tasks ended is what
   janus_nursery_await says. */
int32_t janus_nursery_destroy(janus_nursery nursery);

/* Tells all tasks of the nursery to stop. For any task or thread. */
int32_t janus_nursery_cancel(janus_nursery nursery);

/* What is left of the nursery's pool. For its owner.
   The caller promises:
   pool is null or can be written to. */
int32_t janus_nursery_pool(janus_nursery nursery, janus_pool *pool);

/* Moves more into the nursery's pool, from where the pool came from. For its owner. */
int32_t janus_nursery_top_up(janus_nursery nursery, janus_pool amount);

/* The tasks of the nursery that have not ended. For its owner.
   The caller promises:
   live is null or can be written to. */
int32_t janus_nursery_live(janus_nursery nursery, uint64_t *live);

/* Waits for the task and takes its result, if result is not null. The handle is used up. For the owner of its nursery.
   The caller promises:
   result is null or can be written to. */
int32_t janus_task_join(janus_task task, int64_t *result);

/* Gives the handle back without waiting. The nursery waits for the task. */
int32_t janus_task_detach(janus_task task);

/* Tells the task to stop. For the owner of its nursery. */
int32_t janus_task_cancel(janus_task task);

/* What the task does now, one of JANUS_TASK_. For the owner of its nursery.
   The caller promises:
   state is null or can be written to. */
int32_t janus_task_state(janus_task task, uint32_t *state);

/* The number of the task, as janus_nursery_result has it; 0 if there is no such task. For the owner of its nursery. */
uint64_t janus_task_id(janus_task task);

/* Grants the task more budget, out of its nursery's pool. One that waits for budget goes on. For the owner of the nursery. */
int32_t janus_task_recharge(janus_task task, janus_budget amount);

/* Grants the task more budget by the owner's JANUS_CAP_BUDGET, in the cluster profile. For the task that owns the nursery. */
int32_t janus_task_supervise(janus_task task, janus_budget amount);

/* Lets other tasks run. Free of charge. For tasks. */
int32_t janus_scheduler_yield(void);

/* Waits for so long. The task waits, its worker does not. For tasks. */
int32_t janus_task_sleep(uint64_t ns);

/* Nanoseconds since the scheduler started, by its clock, which is virtual in the deterministic mode; 0 outside of tasks. */
uint64_t janus_task_now(void);

/* JANUS_OK, or why the calling task should return. */
int32_t janus_task_check(void);

/* What the calling task has left; nothing outside of tasks. */
janus_budget janus_budget_get_current(void);

/* Adds to the calling task's budget by its JANUS_CAP_BUDGET, out of the pool of the nursery that it is a child of. A task that had
   used up its budget goes on. */
int32_t janus_budget_recharge(janus_budget amount);

/* Pays for ops turns of a loop, or calls: the yield check of compiled code. The task gives way when its quantum is over. */
int32_t janus_budget_charge(uint32_t ops);

/* Pays for an allocation of so many bytes, and one op. */
int32_t janus_budget_charge_memory(size_t bytes);

/* Pays for a file or network operation, and one op. */
int32_t janus_budget_charge_syscall(void);

/* Makes a channel for capacity words; with 0 a send waits for its receiver. Null if that fails. A task needs
   JANUS_CAP_CHANNEL. */
janus_channel janus_channel_create(uint32_t capacity);

/* Sends a word, waiting at most timeout_ns: 0 only tries, JANUS_FOREVER waits as long as it takes. A task pays one op and one
   channel operation. */
int32_t janus_channel_send(janus_channel channel, uint64_t word, uint64_t timeout_ns);

/* Receives a word, waiting as janus_channel_send does.
   The caller promises:
   word is null or can be written to. */
int32_t janus_channel_recv(janus_channel channel, uint64_t *word, uint64_t timeout_ns);

/* Closes the channel: later sends are refused, and receivers get what is left. */
int32_t janus_channel_close(janus_channel channel);

/* Closes the channel and gives its handle back. Words that are left in it are lost. */
int32_t janus_channel_destroy(janus_channel channel);

/* Makes an endpoint for tasks of one scheduler. Null if that fails. A task needs JANUS_CAP_CHANNEL. A thread makes it for the scheduler
   that it has used last. */
janus_endpoint janus_endpoint_create(void);

/* Calls, and waits at most timeout_ns for the answer; JANUS_FOREVER waits as long as it takes. Only a task can call. If a server has
   taken the call and ends without an answer, the status is JANUS_SERVER_GONE.
   The caller promises:
   answer is null or can be written to. */
int32_t janus_endpoint_call(janus_endpoint endpoint, uint64_t word, uint64_t *answer, uint64_t timeout_ns);

/* Waits at most timeout_ns for a call; JANUS_FOREVER waits as long as it takes. Gives its word, and what answers it. Only a task can
   receive, and the same task answers. A task that returns drops the calls that it has not answered.
   The caller promises:
   word and taken are null or can be written to. */
int32_t janus_endpoint_receive(janus_endpoint endpoint, uint64_t *word, janus_call *taken, uint64_t timeout_ns);

/* Answers a call that this task has taken. The handle is given back. JANUS_CLOSED if the caller has stopped waiting. */
int32_t janus_call_reply(janus_call call, uint64_t answer);

/* Drops a call that this task has taken: its caller is told that the server is gone. The handle is given back. */
int32_t janus_call_drop(janus_call call);

/* Closes the endpoint and gives its handle back: calls that wait or are served fail. */
int32_t janus_endpoint_destroy(janus_endpoint endpoint);

/* Makes a scheduling context: exactly admitted, or refused with JANUS_NOT_ADMITTED. Null if that fails. It is at rest: bind it, or spawn a task
   on it. A task needs JANUS_CAP_CONTEXT. A thread makes it on its current scheduler, whose config says how many there can be.
   The caller promises:
   asked is null or can be read. */
janus_context janus_context_create(const janus_reservation *asked);

/* Binds the context to the calling task, which runs on it from here on. The time must be on the task's worker: JANUS_ELSEWHERE if not. */
int32_t janus_context_bind(janus_context context);

/* The calling task gives the context up, and goes on without. JANUS_NOT_OWNER if it is not bound to it. */
int32_t janus_context_unbind(janus_context context);

/* What is known of the context.
   The caller promises:
   info is null or can be written to. */
int32_t janus_context_get_info(janus_context context, janus_context_info *info);

/* What is known of the context that the calling task has, bound to it or lent to it. JANUS_WOULD_BLOCK if it has none.
   The caller promises:
   info is null or can be written to. */
int32_t janus_task_context(janus_context_info *info);

/* Grants the context another budget and period: exactly admitted, or refused. Not for tasks. */
int32_t janus_context_adjust(janus_context context, uint64_t budget_ns, uint64_t period_ns);

/* Takes the context away for good, also from the task that has it, which goes on without. Its time can be granted again at once. */
int32_t janus_context_revoke(janus_context context);

/* How often the budget was used up, and how often a deadline passed, since this was last asked.
   The caller promises:
   notices is null or can be written to. */
int32_t janus_context_take_notices(janus_context context, janus_context_notices *notices);

/* Waits at most timeout_ns until something has happened to the context; JANUS_FOREVER waits as long as it takes. JANUS_TIMED_OUT if nothing has.
   One task at a time can wait.
   The caller promises:
   notices is null or can be written to. */
int32_t janus_context_wait(janus_context context, janus_context_notices *notices, uint64_t timeout_ns);

/* Gives the handle back. The context is revoked, unless it was. */
int32_t janus_context_destroy(janus_context context);

/* Makes a quota on the current scheduler of the calling thread: full at its start. Null if that fails. Not for tasks, which share theirs.
   The caller promises:
   asked is null or can be read. */
janus_quota janus_quota_create(const janus_rate *asked);

/* A quota out of another one, which has so much less until the last task and the handle of the new one are gone. It has the period of the
   whole, and limits what the whole limits. Null if that fails.
   The caller promises:
   asked is null or can be read. */
janus_quota janus_quota_share(janus_quota whole, const janus_rate *asked);

/* What could be used of the quota now, and how often a task had to wait for it.
   The caller promises:
   left and throttled are null or can be written to. */
int32_t janus_quota_left(janus_quota quota, janus_pool *left, uint64_t *throttled);

/* Gives the handle back. Tasks that share the quota keep it. */
int32_t janus_quota_destroy(janus_quota quota);

#ifdef __cplusplus
}
#endif

#endif
