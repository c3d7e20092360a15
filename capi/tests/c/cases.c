/* Cases for the library from C. `cases NAME` runs one, `cases` lists them. */
#include <mainspring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char said[512];

static const char *last(void) {
    janus_error_text(said, sizeof said);
    return said;
}

#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, last());                   \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

#define STATUS(call, wanted)                                                                               \
    do {                                                                                                   \
        int32_t got_ = (call);                                                                             \
        if (got_ != (wanted)) {                                                                            \
            fprintf(stderr, "%s:%d: %s is %d (%s), not %s: %s\n", __FILE__, __LINE__, #call, got_,         \
                    janus_status_text(got_), #wanted, last());                                             \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

#define MS 1000000ull

static janus_scheduler started(uint32_t workers) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = workers;
    janus_scheduler scheduler = janus_scheduler_create(config);
    CHECK(scheduler != NULL);
    return scheduler;
}

static janus_scheduler_config with_caps(uint32_t workers) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = workers;
    config.profile = JANUS_PROFILE_SOVEREIGN;
    config.caps = JANUS_CAP_SPAWN | JANUS_CAP_BUDGET | JANUS_CAP_CHANNEL;
    config.task_limit = 100;
    config.child_budget = (janus_budget){100000, 1 << 20, 100, 1000, 100};
    config.recharge_limit = (janus_budget){1000, 1 << 20, 100, 1000, 100};
    return config;
}

/* Runs `function` as the root task of a scheduler that is made and ended for it. */
static int64_t run_root(janus_scheduler_config config, janus_task_fn function, void *arg) {
    janus_scheduler scheduler = janus_scheduler_create(config);
    CHECK(scheduler != NULL);
    int64_t result = -1;
    STATUS(janus_scheduler_run(scheduler, function, arg, &result), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    return result;
}

static int64_t return_arg(void *arg) { return (int64_t)(intptr_t)arg; }

static void *answer(int64_t value) { return (void *)(intptr_t)value; }

/* ---- schedulers ---- */

static void lifecycle(void) {
    janus_scheduler scheduler = started(3);
    CHECK(janus_scheduler_workers(scheduler) == 3);
    int64_t result = 0;
    STATUS(janus_scheduler_run(scheduler, return_arg, answer(42), &result), JANUS_OK);
    CHECK(result == 42);
    STATUS(janus_scheduler_run(scheduler, return_arg, answer(-5), &result), JANUS_TASK_FAILED);
    CHECK(result == -5);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_STALE_HANDLE);
    STATUS(janus_scheduler_run(scheduler, return_arg, NULL, NULL), JANUS_STALE_HANDLE);
    CHECK(janus_scheduler_workers(scheduler) == 0);
    STATUS(janus_scheduler_shutdown(NULL), JANUS_INVALID_HANDLE);
}

static void no_workers(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    CHECK(config.worker_count >= 1);
    config.worker_count = 0;
    CHECK(janus_scheduler_create(config) == NULL);
    CHECK(strstr(last(), "0 workers") != NULL);
    config.worker_count = 1 << 20;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.profile = 77;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.deterministic = 9;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.reserved[2] = 1;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.tenant_count = 3;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.stack_size = 1;
    CHECK(janus_scheduler_create(config) == NULL);
}

/* Field by field: what is between the fields of a struct has no value. */
static int same_budget(janus_budget one, janus_budget other) {
    return one.ops == other.ops && one.memory == other.memory && one.spawn_count == other.spawn_count &&
           one.channel_ops == other.channel_ops && one.syscalls == other.syscalls;
}

static char order[64];
static int ordered;

static int64_t mark_thrice(void *arg) {
    for (int i = 0; i < 3; i++) {
        order[ordered++] = (char)(intptr_t)arg;
        janus_budget before = janus_budget_get_current();
        STATUS(janus_scheduler_yield(), JANUS_OK);
        janus_budget after = janus_budget_get_current();
        CHECK(same_budget(before, after));
    }
    return 0;
}

static int64_t spawn_two(void *arg) {
    (void)arg;
    STATUS(janus_scheduler_spawn(mark_thrice, "a"), JANUS_NURSERY_NOT_ACTIVE);
    janus_nursery nursery = janus_nursery_create();
    CHECK(nursery != NULL);
    STATUS(janus_scheduler_spawn(mark_thrice, answer('a')), JANUS_OK);
    STATUS(janus_scheduler_spawn(mark_thrice, answer('b')), JANUS_OK);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_scheduler_spawn(mark_thrice, answer('c')), JANUS_NURSERY_NOT_ACTIVE);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void spawn_and_yield(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = 1;
    CHECK(run_root(config, spawn_two, NULL) == 0);
    /* One worker: they take turns, since each gives way. */
    CHECK(ordered == 6);
    for (int i = 0; i + 1 < ordered; i++) CHECK(order[i] != order[i + 1]);
    STATUS(janus_scheduler_yield(), JANUS_NOT_A_TASK);
    STATUS(janus_scheduler_spawn(mark_thrice, NULL), JANUS_NURSERY_NOT_ACTIVE);
}

static int64_t some_work(void *arg) {
    int n = (int)(intptr_t)arg;
    for (int i = 0; i < n; i++) STATUS(janus_scheduler_yield(), JANUS_OK);
    return n;
}

static int64_t a_tree(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    for (int i = 0; i < 20; i++) CHECK(janus_nursery_spawn(nursery, some_work, answer(i)) != NULL);
    janus_nursery_result result = janus_nursery_await(nursery);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return result.status;
}

static uint64_t trace_of(uint32_t workers, uint64_t seed) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = workers;
    config.deterministic = JANUS_ORDER_SEEDED;
    config.deterministic_seed = seed;
    janus_scheduler scheduler = janus_scheduler_create(config);
    CHECK(scheduler != NULL);
    int64_t result = -1;
    STATUS(janus_scheduler_run(scheduler, a_tree, NULL, &result), JANUS_OK);
    CHECK(result == JANUS_OK);
    uint64_t hash = 0, count = 0;
    STATUS(janus_scheduler_trace(scheduler, &hash, &count), JANUS_OK);
    CHECK(count > 20);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    return hash;
}

static void deterministic(void) {
    CHECK(trace_of(4, 42) == trace_of(4, 42));
    CHECK(trace_of(4, 42) != trace_of(4, 43));
    CHECK(trace_of(4, 42) != trace_of(3, 42));
    janus_scheduler scheduler = started(1);
    STATUS(janus_scheduler_trace(scheduler, NULL, NULL), JANUS_INVALID_ARGUMENT);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static int64_t wait_for_nobody(void *arg) {
    uint64_t word;
    return janus_channel_recv(arg, &word, JANUS_FOREVER) == JANUS_OK ? 0 : -1;
}

static void deadlock(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = 2;
    config.deterministic = JANUS_ORDER_SEEDED_DEADLOCK_FAILS;
    janus_scheduler scheduler = janus_scheduler_create(config);
    janus_channel channel = janus_channel_create(1);
    STATUS(janus_scheduler_run(scheduler, wait_for_nobody, channel, NULL), JANUS_DEADLOCK);
    STATUS(janus_channel_destroy(channel), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static int told, begun;

static void begin(void) { __atomic_add_fetch(&begun, 1, __ATOMIC_SEQ_CST); }

static int has_begun(int tasks) { return __atomic_load_n(&begun, __ATOMIC_SEQ_CST) >= tasks; }

/* A thread waits until so many tasks run. */
static void wait_until_begun(int tasks) {
    struct timespec wait = {0, MS};
    while (!has_begun(tasks)) nanosleep(&wait, NULL);
}

/* When another task sleeps on it. */
static void *shut_down(void *scheduler) {
    static int sleepers;
    wait_until_begun(++sleepers);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    return NULL;
}

static int64_t sleep_long(void *arg) {
    (void)arg;
    begin();
    int32_t status = janus_task_sleep(3600 * 1000 * MS);
    CHECK(status == JANUS_CANCELLED);
    /* Whatever it tries now is refused the same way. */
    STATUS(janus_scheduler_yield(), JANUS_CANCELLED);
    STATUS(janus_budget_charge(1), JANUS_CANCELLED);
    CHECK(janus_nursery_create() == NULL);
    return 7;
}

static void shutdown_elsewhere(void) {
    janus_scheduler scheduler = started(2);
    pthread_t thread;
    /* Of a thread that awaits. */
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, sleep_long, NULL) != NULL);
    CHECK(pthread_create(&thread, NULL, shut_down, scheduler) == 0);
    CHECK(janus_nursery_await(nursery).status == JANUS_CANCELLED);
    pthread_join(thread, NULL);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_STALE_HANDLE);
    /* Of a thread that runs. */
    STATUS(janus_scheduler_enter(NULL), JANUS_OK);
    scheduler = started(2);
    CHECK(pthread_create(&thread, NULL, shut_down, scheduler) == 0);
    STATUS(janus_scheduler_run(scheduler, sleep_long, NULL, NULL), JANUS_CANCELLED);
    pthread_join(thread, NULL);
    /* Of a thread that has one open and does not look. */
    STATUS(janus_scheduler_enter(NULL), JANUS_OK);
    scheduler = started(2);
    STATUS(janus_scheduler_enter(scheduler), JANUS_OK);
    nursery = janus_nursery_create();
    janus_task task = janus_nursery_spawn(nursery, sleep_long, NULL);
    CHECK(task != NULL);
    CHECK(pthread_create(&thread, NULL, shut_down, scheduler) == 0);
    pthread_join(thread, NULL);
    STATUS(janus_task_join(task, NULL), JANUS_STALE_HANDLE);
    CHECK(janus_nursery_spawn(nursery, sleep_long, NULL) == NULL);
    STATUS(janus_nursery_cancel(nursery), JANUS_NURSERY_NOT_ACTIVE);
    CHECK(janus_nursery_await(nursery).status == JANUS_CANCELLED);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    CHECK(janus_nursery_create() == NULL);
    CHECK(strstr(last(), "gone") != NULL);
}

/* ---- nurseries: only the four functions ---- */

static int finished;

static int64_t finish(void *arg) {
    (void)arg;
    __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void four_functions(void) {
    janus_nursery nursery = janus_nursery_create();
    for (int i = 0; i < 10; i++) CHECK(janus_nursery_spawn(nursery, finish, NULL) != NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    CHECK(finished == 10);
    janus_nursery_destroy(nursery);
    nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, return_arg, answer(-7)) != NULL);
    janus_nursery_result result = janus_nursery_await(nursery);
    CHECK(result.status == JANUS_TASK_FAILED && result.code == -7 && result.task_id != 0);
    janus_nursery_destroy(nursery);
}

static int64_t sleep_until_told(void *arg) {
    (void)arg;
    begin();
    if (janus_task_sleep(3600 * 1000 * MS) == JANUS_CANCELLED) __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
    /* Too late: an error came before. */
    return -99;
}

static int64_t fail_later(void *arg) {
    /* When all others have begun. */
    while (!has_begun(5)) STATUS(janus_task_sleep(MS), JANUS_OK);
    return (int64_t)(intptr_t)arg;
}

/* The owner is a task: what it does inside is over too. */
static int64_t inside_failing(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    /* The others were those of the nursery before. */
    CHECK(has_begun(5));
    CHECK(janus_nursery_spawn(nursery, fail_later, answer(-3)) != NULL);
    STATUS(janus_task_sleep(3600 * 1000 * MS), JANUS_CANCELLED);
    janus_nursery_result result = janus_nursery_await(nursery);
    CHECK(result.status == JANUS_TASK_FAILED && result.code == -3);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    /* And outside it goes on. */
    STATUS(janus_task_sleep(1), JANUS_OK);
    return 1;
}

static void first_error(void) {
    janus_scheduler scheduler = started(2);
    janus_nursery nursery = janus_nursery_create();
    for (int i = 0; i < 5; i++) CHECK(janus_nursery_spawn(nursery, sleep_until_told, NULL) != NULL);
    janus_task failing = janus_nursery_spawn(nursery, fail_later, answer(-8));
    uint64_t id = janus_task_id(failing);
    janus_nursery_result result = janus_nursery_await(nursery);
    CHECK(result.status == JANUS_TASK_FAILED && result.code == -8 && result.task_id == id);
    CHECK(strstr(last(), "returned the error -8") != NULL);
    CHECK(told == 5);
    /* The same again. */
    CHECK(janus_nursery_await(nursery).code == -8);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    int64_t value = 0;
    STATUS(janus_scheduler_run(scheduler, inside_failing, NULL, &value), JANUS_OK);
    CHECK(value == 1);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static int64_t finish_late(void *arg) {
    STATUS(janus_task_sleep(20 * MS), JANUS_OK);
    return finish(arg);
}

static int64_t spawn_grandchild(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, finish_late, NULL) != NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static int64_t count_cancelled(void *arg) {
    (void)arg;
    begin();
    CHECK(janus_task_sleep(3600 * 1000 * MS) == JANUS_CANCELLED);
    return finish(NULL);
}

static int64_t leave_open(void *arg) {
    (void)arg;
    CHECK(janus_nursery_create() != NULL);
    janus_nursery inner = janus_nursery_create();
    CHECK(janus_nursery_spawn(inner, count_cancelled, NULL) != NULL);
    while (!has_begun(1)) STATUS(janus_task_sleep(MS), JANUS_OK);
    return 0;
}

static void no_orphans(void) {
    janus_scheduler scheduler = started(2);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.has_pool = 1;
    options.pool = (janus_pool){1000000, 1 << 20, 10, 100, 100};
    for (int i = 0; i < 4; i++) CHECK(janus_nursery_spawn_with(nursery, spawn_grandchild, NULL, &options) != NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    CHECK(finished == 4);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    /* To destroy is to wait as well. */
    nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, finish_late, NULL) != NULL);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    CHECK(finished == 5);
    /* A task that leaves nurseries open: they are cancelled, and over when it has ended. */
    STATUS(janus_scheduler_run(scheduler, leave_open, NULL, NULL), JANUS_NURSERY_LEFT_OPEN);
    CHECK(finished == 6);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static void *leave_thread(void *scheduler) {
    STATUS(janus_scheduler_enter(scheduler), JANUS_OK);
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, count_cancelled, NULL) != NULL);
    wait_until_begun(1);
    return nursery;
}

static void thread_ends(void) {
    janus_scheduler scheduler = started(2);
    pthread_t thread;
    void *nursery;
    CHECK(pthread_create(&thread, NULL, leave_thread, scheduler) == 0);
    pthread_join(thread, &nursery);
    CHECK(finished == 1);
    STATUS(janus_nursery_cancel(nursery), JANUS_STALE_HANDLE);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static int64_t inside_out(void *arg) {
    (void)arg;
    janus_nursery outer = janus_nursery_create(), inner = janus_nursery_create();
    CHECK(janus_nursery_await(outer).status == JANUS_NOT_INNERMOST);
    STATUS(janus_nursery_destroy(outer), JANUS_NOT_INNERMOST);
    STATUS(janus_nursery_destroy(inner), JANUS_OK);
    STATUS(janus_nursery_destroy(outer), JANUS_OK);
    STATUS(janus_nursery_destroy(outer), JANUS_STALE_HANDLE);
    return 0;
}

static void innermost(void) { CHECK(run_root(janus_scheduler_config_default(), inside_out, NULL) == 0); }

static void deadline(void) {
    janus_scheduler scheduler = started(2);
    janus_nursery_options options = {0};
    options.deadline_ns = 20 * MS;
    janus_nursery nursery = janus_nursery_create_with(&options);
    CHECK(janus_nursery_spawn(nursery, sleep_until_told, NULL) != NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_DEADLINE_EXCEEDED);
    /* On a host that is busy the deadline may come before the task. */
    CHECK(told == begun);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    options.on_exhausted = 9;
    CHECK(janus_nursery_create_with(&options) == NULL);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

/* ---- results ---- */

struct peek {
    janus_task of;
    janus_channel go;
};

static int64_t peek_at_sibling(void *arg) {
    struct peek *peek = arg;
    uint64_t word;
    STATUS(janus_channel_recv(peek->go, &word, JANUS_FOREVER), JANUS_OK);
    int64_t result = 0;
    uint32_t state;
    STATUS(janus_task_join(peek->of, &result), JANUS_NOT_OWNER);
    STATUS(janus_task_state(peek->of, &state), JANUS_NOT_OWNER);
    STATUS(janus_task_cancel(peek->of), JANUS_NOT_OWNER);
    STATUS(janus_task_recharge(peek->of, (janus_budget){1, 0, 0, 0, 0}), JANUS_NOT_OWNER);
    CHECK(result == 0);
    return 0;
}

static void *peek_from_thread(void *task) {
    int64_t result = 0;
    STATUS(janus_task_join(task, &result), JANUS_NOT_OWNER);
    CHECK(result == 0);
    return NULL;
}

static void results(void) {
    janus_scheduler scheduler = started(2);
    janus_nursery nursery = janus_nursery_create();
    struct peek peek = {NULL, janus_channel_create(1)};
    janus_task peeking = janus_nursery_spawn(nursery, peek_at_sibling, &peek);
    peek.of = janus_nursery_spawn(nursery, return_arg, answer(77));
    STATUS(janus_channel_send(peek.go, 1, JANUS_FOREVER), JANUS_OK);
    STATUS(janus_task_join(peeking, NULL), JANUS_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, peek_from_thread, peek.of) == 0);
    pthread_join(thread, NULL);
    int64_t result = 0;
    STATUS(janus_task_join(peek.of, &result), JANUS_OK);
    CHECK(result == 77);
    STATUS(janus_task_join(peek.of, &result), JANUS_STALE_HANDLE);
    janus_task forgotten = janus_nursery_spawn(nursery, return_arg, answer(1));
    STATUS(janus_task_detach(forgotten), JANUS_OK);
    STATUS(janus_task_detach(forgotten), JANUS_STALE_HANDLE);
    janus_task late = janus_nursery_spawn(nursery, return_arg, answer(1));
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_task_join(late, NULL), JANUS_STALE_HANDLE);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_channel_destroy(peek.go), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

/* ---- budgets ---- */

static int64_t look_at_budget(void *arg) {
    (void)arg;
    janus_budget budget = janus_budget_get_current();
    CHECK(budget.ops == 1000 && budget.memory == 4096 && budget.spawn_count == 3);
    CHECK(budget.channel_ops == 5 && budget.syscalls == 7);
    STATUS(janus_budget_charge(10), JANUS_OK);
    STATUS(janus_budget_charge_memory(96), JANUS_OK);
    STATUS(janus_budget_charge_syscall(), JANUS_OK);
    budget = janus_budget_get_current();
    CHECK(budget.ops == 988 && budget.memory == 4000 && budget.spawn_count == 3);
    CHECK(budget.channel_ops == 5 && budget.syscalls == 6);
    return 0;
}

static void budget_by_value(void) {
    janus_scheduler scheduler = started(1);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.has_budget = 1;
    options.budget = (janus_budget){1000, 4096, 3, 5, 7};
    janus_task task = janus_nursery_spawn_with(nursery, look_at_budget, NULL, &options);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    janus_budget none = janus_budget_get_current();
    CHECK(none.ops == 0 && none.memory == 0 && none.spawn_count == 0 && none.channel_ops == 0 && none.syscalls == 0);
    STATUS(janus_budget_recharge((janus_budget){1, 0, 0, 0, 0}), JANUS_NOT_A_TASK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

static int64_t recharge_to_the_limit(void *arg) {
    (void)arg;
    uint32_t before = janus_budget_get_current().ops;
    STATUS(janus_budget_recharge((janus_budget){300, 0, 0, 0, 0}), JANUS_OK);
    CHECK(janus_budget_get_current().ops == before + 300);
    STATUS(janus_budget_recharge((janus_budget){300, 0, 0, 0, 0}), JANUS_OVER_LIMIT);
    STATUS(janus_budget_recharge((janus_budget){200, 0, 0, 0, 0}), JANUS_OK);
    STATUS(janus_budget_recharge((janus_budget){1, 0, 0, 0, 0}), JANUS_OVER_LIMIT);
    CHECK(janus_budget_get_current().ops == before + 500);
    return 0;
}

static int64_t recharge_without(void *arg) {
    (void)arg;
    STATUS(janus_budget_recharge((janus_budget){1, 0, 0, 0, 0}), JANUS_NOT_PERMITTED);
    return 0;
}

/* It has used up its budget, is told, recharges, and goes on. */
static int64_t recharge_and_retry(void *arg) {
    (void)arg;
    STATUS(janus_budget_charge(100), JANUS_OK);
    STATUS(janus_budget_charge(1), JANUS_BUDGET_EXHAUSTED);
    STATUS(janus_scheduler_yield(), JANUS_BUDGET_EXHAUSTED);
    STATUS(janus_budget_recharge((janus_budget){50, 0, 0, 0, 0}), JANUS_OK);
    STATUS(janus_budget_charge(10), JANUS_OK);
    STATUS(janus_scheduler_yield(), JANUS_OK);
    return 5;
}

static int64_t recharge_parent(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.caps = JANUS_CAP_BUDGET;
    options.recharge_limit = (janus_budget){500, 0, 0, 0, 0};
    janus_task task = janus_nursery_spawn_with(nursery, recharge_to_the_limit, NULL, &options);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    task = janus_nursery_spawn(nursery, recharge_without, NULL);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    options.recharge_limit = (janus_budget){50, 0, 0, 0, 0};
    options.has_budget = 1;
    options.budget = (janus_budget){100, 0, 0, 0, 0};
    task = janus_nursery_spawn_with(nursery, recharge_and_retry, NULL, &options);
    int64_t result = 0;
    STATUS(janus_task_join(task, &result), JANUS_OK);
    CHECK(result == 5);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void self_recharge(void) { CHECK(run_root(with_caps(1), recharge_parent, NULL) == 0); }

static int64_t use_200_ops(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) STATUS(janus_budget_charge(1), JANUS_OK);
    return 200;
}

static int64_t feed_child(void *arg) {
    (void)arg;
    janus_nursery_options options = {0};
    options.has_pool = 1;
    options.pool = (janus_pool){1000, 4096, 4, 4, 4};
    options.on_exhausted = JANUS_EXHAUSTED_PARK;
    janus_nursery nursery = janus_nursery_create_with(&options);
    CHECK(nursery != NULL);
    janus_spawn_options child = {0};
    child.has_budget = 1;
    child.budget = (janus_budget){50, 0, 0, 0, 0};
    janus_task task = janus_nursery_spawn_with(nursery, use_200_ops, NULL, &child);
    CHECK(task != NULL);
    uint32_t state = JANUS_TASK_READY;
    while (state != JANUS_TASK_BUDGET_EXHAUSTED) {
        STATUS(janus_scheduler_yield(), JANUS_OK);
        STATUS(janus_task_state(task, &state), JANUS_OK);
    }
    STATUS(janus_task_recharge(task, (janus_budget){100000, 0, 0, 0, 0}), JANUS_POOL_EXHAUSTED);
    STATUS(janus_task_state(task, &state), JANUS_OK);
    CHECK(state == JANUS_TASK_BUDGET_EXHAUSTED);
    janus_pool pool;
    STATUS(janus_nursery_pool(nursery, &pool), JANUS_OK);
    CHECK(pool.ops == 950);
    STATUS(janus_task_recharge(task, (janus_budget){200, 0, 0, 0, 0}), JANUS_OK);
    STATUS(janus_task_state(task, &state), JANUS_OK);
    CHECK(state != JANUS_TASK_BUDGET_EXHAUSTED);
    int64_t result = 0;
    STATUS(janus_task_join(task, &result), JANUS_OK);
    CHECK(result == 200);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void parent_recharge(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = 1;
    CHECK(run_root(config, feed_child, NULL) == 0);
}

static int64_t allocate(void *arg) {
    (void)arg;
    STATUS(janus_budget_charge_memory(4000), JANUS_OK);
    STATUS(janus_budget_charge_memory(4000), JANUS_MEMORY_BUDGET_EXHAUSTED);
    CHECK(janus_budget_get_current().memory == 96);
    STATUS(janus_budget_recharge((janus_budget){0, 4000, 0, 0, 0}), JANUS_OK);
    STATUS(janus_budget_charge_memory(4000), JANUS_OK);
    return 0;
}

static int64_t run_out(void *arg) {
    (void)arg;
    janus_nursery_options few = {0};
    few.has_pool = 1;
    few.pool = (janus_pool){200000, 10000, 1, 100, 100};
    janus_nursery nursery = janus_nursery_create_with(&few);
    janus_spawn_options options = {0};
    options.has_budget = 1;
    options.budget = (janus_budget){100, 0, 0, 0, 0};
    CHECK(janus_nursery_spawn_with(nursery, return_arg, NULL, &options) != NULL);
    CHECK(janus_nursery_spawn_with(nursery, return_arg, NULL, &options) == NULL);
    CHECK(strstr(last(), "spawn_count") != NULL);
    STATUS(janus_scheduler_spawn(return_arg, NULL), JANUS_SPAWN_BUDGET_EXHAUSTED);
    STATUS(janus_nursery_top_up(nursery, (janus_pool){0, 0, 1, 0, 0}), JANUS_OK);
    options.budget = (janus_budget){1000, 4096, 0, 0, 0};
    options.caps = JANUS_CAP_BUDGET;
    options.recharge_limit = (janus_budget){0, 4000, 0, 0, 0};
    janus_task task = janus_nursery_spawn_with(nursery, allocate, NULL, &options);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void exhausted(void) { CHECK(run_root(with_caps(1), run_out, NULL) == 0); }

static int64_t no_end(void *arg) {
    (void)arg;
    int32_t status;
    while ((status = janus_budget_charge(100)) == JANUS_OK) {}
    CHECK(status == JANUS_BUDGET_EXHAUSTED);
    return 0;
}

static void ignored_end(void) {
    janus_scheduler scheduler = started(1);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.has_budget = 1;
    options.budget = (janus_budget){5000, 0, 0, 0, 0};
    CHECK(janus_nursery_spawn_with(nursery, no_end, NULL, &options) != NULL);
    /* It returned as if nothing had been. The nursery knows better. */
    CHECK(janus_nursery_await(nursery).status == JANUS_BUDGET_EXHAUSTED);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

/* ---- capabilities ---- */

static int64_t spawn_by_any_route(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    CHECK(nursery != NULL);
    CHECK(janus_nursery_spawn(nursery, finish, NULL) == NULL);
    CHECK(strstr(last(), "CapSpawn") != NULL);
    janus_spawn_options options = {0};
    options.caps = JANUS_CAP_SPAWN | JANUS_CAP_BUDGET | JANUS_CAP_CHANNEL;
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &options) == NULL);
    STATUS(janus_scheduler_spawn(finish, NULL), JANUS_NOT_PERMITTED);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    CHECK(janus_channel_create(1) == NULL);
    /* Nor by the authority of a host. */
    CHECK(janus_scheduler_create(janus_scheduler_config_default()) == NULL);
    STATUS(janus_scheduler_run(NULL, finish, NULL, NULL), JANUS_IN_TASK);
    STATUS(janus_scheduler_enter(NULL), JANUS_IN_TASK);
    STATUS(janus_budget_recharge((janus_budget){1, 0, 0, 0, 0}), JANUS_NOT_PERMITTED);
    return 0;
}

static int64_t spawn_powerless(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.caps = JANUS_CAPS_NONE;
    janus_task task = janus_nursery_spawn_with(nursery, spawn_by_any_route, NULL, &options);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    CHECK(finished == 0);
    /* With the capability it can. */
    CHECK(janus_nursery_spawn(nursery, finish, NULL) != NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    CHECK(finished == 1);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void capabilities(void) {
    CHECK(run_root(with_caps(2), spawn_powerless, NULL) == 0);
    finished = 0;
    janus_scheduler_config config = with_caps(2);
    config.caps = JANUS_CAPS_NONE;
    CHECK(run_root(config, spawn_by_any_route, NULL) == 0);
    CHECK(finished == 0);
}

/* ---- handles that are none ---- */

static void every_call_with(void *bad, int32_t wanted) {
    uint64_t word = 0;
    uint32_t state;
    int64_t result;
    janus_pool pool;
    STATUS(janus_scheduler_shutdown(bad), wanted);
    STATUS(janus_scheduler_trace(bad, NULL, NULL), wanted);
    CHECK(janus_scheduler_workers(bad) == 0);
    if (bad != NULL) {
        STATUS(janus_scheduler_enter(bad), wanted);
        STATUS(janus_scheduler_run(bad, finish, NULL, NULL), wanted);
    }
    CHECK(janus_nursery_spawn(bad, finish, NULL) == NULL);
    CHECK(janus_nursery_spawn_with(bad, finish, NULL, NULL) == NULL);
    CHECK(janus_nursery_await(bad).status == wanted);
    STATUS(janus_nursery_destroy(bad), wanted);
    STATUS(janus_nursery_cancel(bad), wanted);
    STATUS(janus_nursery_pool(bad, &pool), wanted);
    STATUS(janus_nursery_live(bad, &word), wanted);
    STATUS(janus_nursery_top_up(bad, (janus_pool){0}), wanted);
    STATUS(janus_task_join(bad, &result), wanted);
    STATUS(janus_task_detach(bad), wanted);
    STATUS(janus_task_cancel(bad), wanted);
    STATUS(janus_task_state(bad, &state), wanted);
    CHECK(janus_task_id(bad) == 0);
    STATUS(janus_task_recharge(bad, (janus_budget){0}), wanted);
    STATUS(janus_channel_send(bad, 1, 0), wanted);
    STATUS(janus_channel_recv(bad, &word, 0), wanted);
    STATUS(janus_channel_close(bad), wanted);
    STATUS(janus_channel_destroy(bad), wanted);
    CHECK(finished == 0);
}

static int64_t bad_handles_in_task(void *arg) {
    (void)arg;
    uint64_t word;
    CHECK(janus_nursery_spawn(NULL, finish, NULL) == NULL);
    CHECK(janus_nursery_await((void *)0xdeadbeef).status == JANUS_INVALID_HANDLE);
    STATUS(janus_task_join((void *)&word, NULL), JANUS_INVALID_HANDLE);
    STATUS(janus_task_supervise(NULL, (janus_budget){0}), JANUS_INVALID_HANDLE);
    STATUS(janus_channel_recv(NULL, &word, 0), JANUS_INVALID_HANDLE);
    STATUS(janus_scheduler_shutdown(NULL), JANUS_IN_TASK);
    return 0;
}

static void bad_handles(void) {
    janus_scheduler scheduler = started(1);
    int on_stack;
    void *bad[] = {NULL, &on_stack, (void *)bad_handles, (void *)1, (void *)-1, (void *)0xdeadbeef,
                   (void *)0x1000000000000000, (void *)0x2000000000000010, (void *)0x3fffffffffffffff};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) every_call_with(bad[i], JANUS_INVALID_HANDLE);
    /* Of another kind. */
    janus_nursery nursery = janus_nursery_create();
    janus_channel channel = janus_channel_create(0);
    STATUS(janus_channel_close((janus_channel)(void *)nursery), JANUS_INVALID_HANDLE);
    CHECK(janus_nursery_await((janus_nursery)(void *)channel).status == JANUS_INVALID_HANDLE);
    STATUS(janus_scheduler_shutdown((janus_scheduler)(void *)nursery), JANUS_INVALID_HANDLE);
    /* Null where there is something to read or to write. */
    CHECK(janus_nursery_spawn(nursery, NULL, NULL) == NULL);
    STATUS(janus_scheduler_run(scheduler, NULL, NULL, NULL), JANUS_INVALID_ARGUMENT);
    STATUS(janus_scheduler_spawn(NULL, NULL), JANUS_INVALID_ARGUMENT);
    STATUS(janus_nursery_pool(nursery, NULL), JANUS_INVALID_ARGUMENT);
    STATUS(janus_nursery_live(nursery, NULL), JANUS_INVALID_ARGUMENT);
    STATUS(janus_channel_recv(channel, NULL, 0), JANUS_INVALID_ARGUMENT);
    CHECK(janus_channel_create(UINT32_MAX) == NULL);
    CHECK(janus_error_text(NULL, 0) > 0);
    char small[4] = "xyz";
    CHECK(janus_error_text(small, sizeof small) > 3 && strlen(small) == 3);
    CHECK(strcmp(janus_status_text(12345), "no such status") == 0);
    janus_spawn_options options = {0};
    options.reserved[1] = 3;
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &options) == NULL);
    options = (janus_spawn_options){.tenant = 4};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &options) == NULL);
    options = (janus_spawn_options){.stack_size = 3};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &options) == NULL);
    options = (janus_spawn_options){.caps = 1u << 31};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &options) == NULL);
    STATUS(janus_channel_destroy(channel), JANUS_OK);
    STATUS(janus_channel_destroy(channel), JANUS_STALE_HANDLE);
    STATUS(janus_channel_send(channel, 1, 0), JANUS_STALE_HANDLE);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    CHECK(janus_nursery_await(nursery).status == JANUS_STALE_HANDLE);
    CHECK(janus_nursery_spawn(nursery, finish, NULL) == NULL);
    STATUS(janus_scheduler_run(scheduler, bad_handles_in_task, NULL, NULL), JANUS_OK);
    CHECK(finished == 0);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

struct foreign {
    janus_nursery nursery;
    janus_task task;
};

static void *use_foreign(void *arg) {
    struct foreign *foreign = arg;
    janus_pool pool;
    CHECK(janus_nursery_spawn(foreign->nursery, finish, NULL) == NULL);
    CHECK(janus_nursery_await(foreign->nursery).status == JANUS_NOT_OWNER);
    STATUS(janus_nursery_destroy(foreign->nursery), JANUS_NOT_OWNER);
    STATUS(janus_nursery_pool(foreign->nursery, &pool), JANUS_NOT_OWNER);
    STATUS(janus_nursery_top_up(foreign->nursery, (janus_pool){0}), JANUS_NOT_OWNER);
    STATUS(janus_task_detach(foreign->task), JANUS_NOT_OWNER);
    STATUS(janus_scheduler_spawn(finish, NULL), JANUS_NURSERY_NOT_ACTIVE);
    STATUS(janus_scheduler_yield(), JANUS_NOT_A_TASK);
    STATUS(janus_task_sleep(1), JANUS_NOT_A_TASK);
    STATUS(janus_task_check(), JANUS_NOT_A_TASK);
    STATUS(janus_budget_charge(1), JANUS_NOT_A_TASK);
    STATUS(janus_budget_charge_memory(1), JANUS_NOT_A_TASK);
    STATUS(janus_budget_charge_syscall(), JANUS_NOT_A_TASK);
    STATUS(janus_task_supervise(foreign->task, (janus_budget){0}), JANUS_NOT_A_TASK);
    CHECK(janus_task_now() == 0);
    /* To cancel is for anybody who has the handle. */
    STATUS(janus_nursery_cancel(foreign->nursery), JANUS_OK);
    return NULL;
}

static int64_t use_foreign_in_task(void *arg) {
    struct foreign *foreign = arg;
    CHECK(janus_nursery_spawn(foreign->nursery, finish, NULL) == NULL);
    CHECK(janus_nursery_await(foreign->nursery).status == JANUS_NOT_OWNER);
    STATUS(janus_nursery_destroy(foreign->nursery), JANUS_NOT_OWNER);
    return 0;
}

static void foreign_threads(void) {
    janus_scheduler scheduler = started(2);
    struct foreign foreign = {janus_nursery_create(), NULL};
    foreign.task = janus_nursery_spawn(foreign.nursery, sleep_until_told, NULL);
    wait_until_begun(1);
    STATUS(janus_scheduler_run(scheduler, use_foreign_in_task, &foreign, NULL), JANUS_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_foreign, &foreign) == 0);
    pthread_join(thread, NULL);
    /* Its task was told, and then returned an error, which is the first. */
    CHECK(janus_nursery_await(foreign.nursery).status != JANUS_OK);
    CHECK(told == 1 && finished == 0);
    STATUS(janus_nursery_destroy(foreign.nursery), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

/* ---- cancellation ---- */

static int others;

static int64_t deaf(void *arg) {
    (void)arg;
    int32_t status = JANUS_OK;
    /* It is told a thousand times, and does not listen. */
    for (int refused = 0; refused < 1000;) {
        status = janus_scheduler_yield();
        if (status != JANUS_OK) refused++;
    }
    return 0;
}

static int64_t count_to(void *arg) {
    for (int i = 0; i < (int)(intptr_t)arg; i++) {
        STATUS(janus_scheduler_yield(), JANUS_OK);
        others++;
    }
    return 0;
}

static int64_t cancel_the_deaf(void *arg) {
    (void)arg;
    janus_nursery outer = janus_nursery_create();
    CHECK(janus_nursery_spawn(outer, count_to, answer(100)) != NULL);
    janus_nursery inner = janus_nursery_create();
    janus_task task = janus_nursery_spawn(inner, deaf, NULL);
    STATUS(janus_scheduler_yield(), JANUS_OK);
    STATUS(janus_nursery_cancel(inner), JANUS_OK);
    CHECK(janus_nursery_spawn(inner, finish, NULL) == NULL);
    STATUS(janus_task_join(task, NULL), JANUS_CANCELLED);
    CHECK(others > 50);
    CHECK(janus_nursery_await(inner).status == JANUS_CANCELLED);
    STATUS(janus_nursery_destroy(inner), JANUS_OK);
    STATUS(janus_nursery_destroy(outer), JANUS_OK);
    CHECK(others == 100);
    return 0;
}

static int64_t cancel_one(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    janus_task one = janus_nursery_spawn(nursery, count_cancelled, NULL);
    janus_task other = janus_nursery_spawn(nursery, count_to, answer(3));
    while (!has_begun(1)) STATUS(janus_scheduler_yield(), JANUS_OK);
    STATUS(janus_task_cancel(one), JANUS_OK);
    STATUS(janus_task_join(one, NULL), JANUS_CANCELLED);
    STATUS(janus_task_join(other, NULL), JANUS_OK);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void cancel(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.worker_count = 1;
    CHECK(run_root(config, cancel_the_deaf, NULL) == 0);
    CHECK(run_root(config, cancel_one, NULL) == 0);
}

/* ---- channels ---- */

struct pair {
    janus_channel there, back;
};

static int64_t echo(void *arg) {
    struct pair *pair = arg;
    uint64_t word;
    int64_t count = 0;
    while (janus_channel_recv(pair->there, &word, JANUS_FOREVER) == JANUS_OK) {
        STATUS(janus_channel_send(pair->back, word * 2, JANUS_FOREVER), JANUS_OK);
        count++;
    }
    STATUS(janus_channel_send(pair->there, 1, 0), JANUS_CLOSED);
    return count;
}

static int64_t time_out(void *arg) {
    struct pair *pair = arg;
    uint64_t word;
    STATUS(janus_channel_recv(pair->back, &word, 0), JANUS_WOULD_BLOCK);
    uint64_t before = janus_task_now();
    STATUS(janus_channel_recv(pair->back, &word, 5 * MS), JANUS_TIMED_OUT);
    CHECK(janus_task_now() >= before + 5 * MS);
    STATUS(janus_channel_send(pair->back, 1, 0), JANUS_WOULD_BLOCK);
    STATUS(janus_channel_send(pair->back, 1, 5 * MS), JANUS_TIMED_OUT);
    return 0;
}

static void channels(void) {
    janus_scheduler scheduler = started(2);
    struct pair pair = {janus_channel_create(4), janus_channel_create(0)};
    janus_nursery nursery = janus_nursery_create();
    STATUS(janus_scheduler_run(scheduler, time_out, &pair, NULL), JANUS_OK);
    janus_task task = janus_nursery_spawn(nursery, echo, &pair);
    uint64_t word;
    for (uint64_t i = 0; i < 100; i++) {
        STATUS(janus_channel_send(pair.there, i, JANUS_FOREVER), JANUS_OK);
        STATUS(janus_channel_recv(pair.back, &word, JANUS_FOREVER), JANUS_OK);
        CHECK(word == i * 2);
    }
    STATUS(janus_channel_recv(pair.back, &word, 0), JANUS_WOULD_BLOCK);
    STATUS(janus_channel_recv(pair.back, &word, 5 * MS), JANUS_TIMED_OUT);
    STATUS(janus_channel_send(pair.back, 1, 0), JANUS_WOULD_BLOCK);
    STATUS(janus_channel_close(pair.there), JANUS_OK);
    int64_t count = 0;
    STATUS(janus_task_join(task, &count), JANUS_OK);
    CHECK(count == 100);
    /* Destroyed while a task waits in it: the task sees it closed. */
    janus_channel lonely = janus_channel_create(1);
    task = janus_nursery_spawn(nursery, wait_for_nobody, lonely);
    struct timespec wait = {0, 20 * MS};
    nanosleep(&wait, NULL);
    STATUS(janus_channel_destroy(lonely), JANUS_OK);
    STATUS(janus_task_join(task, NULL), JANUS_TASK_FAILED);
    CHECK(janus_nursery_await(nursery).code == -1);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_channel_destroy(pair.there), JANUS_OK);
    STATUS(janus_channel_destroy(pair.back), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
}

/* ---- tenants ---- */

static uint64_t used[2];

static int64_t hog(void *arg) {
    uint64_t *mine = arg;
    while (used[0] + used[1] < 4000000) {
        if (janus_budget_charge(100) != JANUS_OK) return -1;
        *mine += 100;
    }
    return 0;
}

static int64_t two_tenants(void *arg) {
    (void)arg;
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.has_budget = 1;
    options.budget = (janus_budget){100000000, 0, 0, 0, 0};
    for (uint32_t tenant = 0; tenant < 2; tenant++) {
        options.tenant = tenant + 1;
        /* The second has three tasks, and no more for it. */
        for (uint32_t i = 0; i <= 2 * tenant; i++)
            CHECK(janus_nursery_spawn_with(nursery, hog, &used[tenant], &options) != NULL);
    }
    options.tenant = 3;
    CHECK(janus_nursery_spawn_with(nursery, hog, NULL, &options) == NULL);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void tenants(void) {
    uint32_t weights[] = {192, 64};
    janus_scheduler_config config = with_caps(1);
    config.deterministic = JANUS_ORDER_SEEDED;
    config.child_budget.ops = 100000000;
    config.tenant_count = 2;
    config.tenant_weights = weights;
    CHECK(run_root(config, two_tenants, NULL) == 0);
    double ratio = (double)used[0] / (double)used[1];
    if (ratio < 2.7 || ratio > 3.3) fprintf(stderr, "ratio %f\n", ratio);
    CHECK(ratio >= 2.7 && ratio <= 3.3);
}

static janus_endpoint squares;
static janus_call foreign;

static int64_t serve_squares(void *arg) {
    uint64_t word;
    janus_call call;
    for (int64_t i = 0; i < (int64_t)(intptr_t)arg; i++) {
        STATUS(janus_endpoint_receive(squares, &word, &call, JANUS_FOREVER), JANUS_OK);
        STATUS(janus_call_reply(call, word * word), JANUS_OK);
        /* Once, and by nobody again. */
        STATUS(janus_call_reply(call, 1), JANUS_STALE_HANDLE);
        STATUS(janus_call_drop(call), JANUS_STALE_HANDLE);
    }
    return 0;
}

/* Takes a call and returns: its caller must not wait for ever. */
static int64_t take_and_return(void *arg) {
    uint64_t word;
    (void)arg;
    STATUS(janus_endpoint_receive(squares, &word, &foreign, JANUS_FOREVER), JANUS_OK);
    return 0;
}

static int64_t take_and_drop(void *arg) {
    uint64_t word;
    janus_call call;
    (void)arg;
    STATUS(janus_endpoint_receive(squares, &word, &call, JANUS_FOREVER), JANUS_OK);
    STATUS(janus_call_drop(call), JANUS_OK);
    return 0;
}

/* Takes a call, lets another task try to answer it, and answers late. */
static int64_t take_and_wait(void *arg) {
    uint64_t word;
    (void)arg;
    STATUS(janus_endpoint_receive(squares, &word, &foreign, JANUS_FOREVER), JANUS_OK);
    CHECK(janus_task_sleep(20000000) == JANUS_OK);
    int32_t late = janus_call_reply(foreign, 7);
    CHECK(late == JANUS_CLOSED || late == JANUS_OK);
    return 0;
}

static int64_t answer_anothers(void *arg) {
    (void)arg;
    while (foreign == NULL) CHECK(janus_scheduler_yield() == JANUS_OK);
    STATUS(janus_call_reply(foreign, 1), JANUS_NOT_OWNER);
    STATUS(janus_call_drop(foreign), JANUS_NOT_OWNER);
    return 0;
}

static int64_t call_all(void *arg) {
    uint64_t answer = 0;
    (void)arg;
    squares = janus_endpoint_create();
    CHECK(squares != NULL);
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, serve_squares, (void *)(intptr_t)50) != NULL);
    for (uint64_t i = 0; i < 50; i++) {
        STATUS(janus_endpoint_call(squares, i, &answer, JANUS_FOREVER), JANUS_OK);
        CHECK(answer == i * i);
    }
    STATUS(janus_endpoint_call(squares, 1, NULL, JANUS_FOREVER), JANUS_INVALID_ARGUMENT);
    STATUS(janus_endpoint_receive(squares, NULL, NULL, 0), JANUS_INVALID_ARGUMENT);
    /* Nobody serves: time is over. */
    STATUS(janus_endpoint_call(squares, 1, &answer, 1000000), JANUS_TIMED_OUT);
    CHECK(janus_nursery_spawn(nursery, take_and_return, NULL) != NULL);
    STATUS(janus_endpoint_call(squares, 1, &answer, JANUS_FOREVER), JANUS_SERVER_GONE);
    STATUS(janus_call_reply(foreign, 1), JANUS_STALE_HANDLE);
    CHECK(janus_nursery_spawn(nursery, take_and_drop, NULL) != NULL);
    STATUS(janus_endpoint_call(squares, 1, &answer, JANUS_FOREVER), JANUS_SERVER_GONE);
    foreign = NULL;
    CHECK(janus_nursery_spawn(nursery, take_and_wait, NULL) != NULL);
    CHECK(janus_nursery_spawn(nursery, answer_anothers, NULL) != NULL);
    STATUS(janus_endpoint_call(squares, 1, &answer, 1000000), JANUS_TIMED_OUT);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    /* Handles of other kinds, and what is gone. */
    janus_channel channel = janus_channel_create(1);
    STATUS(janus_endpoint_call((janus_endpoint)channel, 1, &answer, 0), JANUS_INVALID_HANDLE);
    STATUS(janus_channel_send((janus_channel)squares, 1, 0), JANUS_INVALID_HANDLE);
    STATUS(janus_call_reply((janus_call)squares, 1), JANUS_INVALID_HANDLE);
    STATUS(janus_call_reply(NULL, 1), JANUS_INVALID_HANDLE);
    STATUS(janus_endpoint_destroy(NULL), JANUS_INVALID_HANDLE);
    STATUS(janus_channel_destroy(channel), JANUS_OK);
    STATUS(janus_endpoint_destroy(squares), JANUS_OK);
    STATUS(janus_endpoint_destroy(squares), JANUS_STALE_HANDLE);
    STATUS(janus_endpoint_call(squares, 1, &answer, 0), JANUS_STALE_HANDLE);
    return 0;
}

static int64_t call_for_ever(void *arg) {
    uint64_t answer;
    (void)arg;
    STATUS(janus_endpoint_call(squares, 1, &answer, JANUS_FOREVER), JANUS_CLOSED);
    return 0;
}

static int64_t close_below_a_caller(void *arg) {
    (void)arg;
    squares = janus_endpoint_create();
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, call_for_ever, NULL) != NULL);
    for (int i = 0; i < 10; i++) CHECK(janus_scheduler_yield() == JANUS_OK);
    STATUS(janus_endpoint_destroy(squares), JANUS_OK);
    int32_t ended = janus_nursery_await(nursery).status;
    CHECK(ended == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return 0;
}

static void endpoints(void) {
    uint64_t word;
    janus_call call;
    CHECK(run_root(with_caps(2), call_all, NULL) == 0);
    janus_scheduler_config one = with_caps(1);
    one.deterministic = JANUS_ORDER_SEEDED;
    CHECK(run_root(one, close_below_a_caller, NULL) == 0);
    /* A thread of the host's is no task. */
    STATUS(janus_call_reply(NULL, 1), JANUS_INVALID_HANDLE);
    janus_scheduler scheduler = started(1);
    janus_nursery nursery = janus_nursery_create();
    janus_endpoint ours = janus_endpoint_create();
    CHECK(ours != NULL);
    STATUS(janus_endpoint_call(ours, 1, &word, 0), JANUS_NOT_A_TASK);
    STATUS(janus_endpoint_receive(ours, &word, &call, 0), JANUS_NOT_A_TASK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    /* It outlives its scheduler as a name, and no more. A new one is of the default scheduler. */
    janus_endpoint other = janus_endpoint_create();
    CHECK(other != NULL && other != ours);
    STATUS(janus_endpoint_destroy(other), JANUS_OK);
    STATUS(janus_endpoint_destroy(ours), JANUS_OK);
    STATUS(janus_endpoint_destroy(ours), JANUS_STALE_HANDLE);
}

static janus_scheduler_config with_contexts(uint32_t workers) {
    janus_scheduler_config config = with_caps(workers);
    config.caps |= JANUS_CAP_CONTEXT;
    config.context_count = 3;
    config.context_share_ppm = 500000;
    return config;
}

static janus_context reserve(uint64_t budget_ns, uint64_t period_ns) {
    janus_reservation asked = {0};
    asked.budget_ns = budget_ns;
    asked.period_ns = period_ns;
    asked.worker = JANUS_ANY_WORKER;
    return janus_context_create(&asked);
}

static int64_t spin_until_told(void *arg) {
    (void)arg;
    while (janus_task_check() == JANUS_OK) {}
    return 0;
}

static int64_t makes_none(void *arg) {
    (void)arg;
    CHECK(reserve(1 * MS, 100 * MS) == NULL);
    CHECK(strstr(last(), "CapContext") != NULL);
    janus_context_info info;
    STATUS(janus_task_context(&info), JANUS_WOULD_BLOCK);
    return 0;
}

static int64_t serve_on_loan(void *arg) {
    uint64_t word;
    janus_call call;
    janus_context_info info;
    (void)arg;
    STATUS(janus_endpoint_receive(squares, &word, &call, JANUS_FOREVER), JANUS_OK);
    STATUS(janus_task_context(&info), JANUS_OK);
    STATUS(janus_call_reply(call, info.place == JANUS_PLACE_LENT ? info.budget_ns : 0), JANUS_OK);
    STATUS(janus_task_context(&info), JANUS_WOULD_BLOCK);
    return 0;
}

static int64_t use_contexts(void *arg) {
    janus_context_info info;
    janus_context_notices notices;
    janus_spawn_options options = {0};
    (void)arg;
    /* What makes no sense, and what nobody granted. */
    CHECK(janus_context_create(NULL) == NULL);
    CHECK(reserve(20 * MS, 10 * MS) == NULL);
    CHECK(reserve(0, 10 * MS) == NULL);
    CHECK(reserve(9 * MS, 10 * MS) == NULL);
    janus_reservation bad = {1 * MS, 10 * MS, 0, 7, JANUS_ANY_WORKER, {0, 0}};
    CHECK(janus_context_create(&bad) == NULL);
    bad = (janus_reservation){1 * MS, 10 * MS, 0, 0, 99, {0, 0}};
    CHECK(janus_context_create(&bad) == NULL);
    bad = (janus_reservation){1 * MS, 10 * MS, 0, 0, JANUS_ANY_WORKER, {1, 0}};
    CHECK(janus_context_create(&bad) == NULL);

    janus_context mine = reserve(2 * MS, 10 * MS);
    CHECK(mine != NULL);
    STATUS(janus_context_get_info(mine, &info), JANUS_OK);
    CHECK(info.budget_ns == 2 * MS && info.period_ns == 10 * MS && info.place == JANUS_PLACE_AT_REST);
    STATUS(janus_context_unbind(mine), JANUS_NOT_OWNER);
    STATUS(janus_context_bind(mine), JANUS_OK);
    STATUS(janus_context_bind(mine), JANUS_IN_USE);
    STATUS(janus_task_context(&info), JANUS_OK);
    CHECK(info.place == JANUS_PLACE_BOUND);
    STATUS(janus_context_adjust(mine, 1 * MS, 10 * MS), JANUS_IN_TASK);

    /* A server without a context serves on its caller's. */
    squares = janus_endpoint_create();
    janus_nursery nursery = janus_nursery_create();
    CHECK(janus_nursery_spawn(nursery, serve_on_loan, NULL) != NULL);
    uint64_t answer = 0;
    STATUS(janus_endpoint_call(squares, 1, &answer, JANUS_FOREVER), JANUS_OK);
    CHECK(answer == 2 * MS);
    CHECK(janus_nursery_await(nursery).status == JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    STATUS(janus_endpoint_destroy(squares), JANUS_OK);
    STATUS(janus_context_unbind(mine), JANUS_OK);

    /* A child that never ends is throttled, and whoever waits is told. */
    nursery = janus_nursery_create();
    options.context = mine;
    CHECK(janus_nursery_spawn_with(nursery, spin_until_told, NULL, &options) != NULL);
    CHECK(janus_nursery_spawn_with(nursery, spin_until_told, NULL, &options) == NULL);
    STATUS(janus_context_wait(mine, &notices, JANUS_FOREVER), JANUS_OK);
    CHECK(notices.depleted + notices.late > 0);
    STATUS(janus_context_get_info(mine, &info), JANUS_OK);
    CHECK(info.used_ns >= 1 * MS && info.depletions > 0);
    options.context = NULL;
    options.caps = JANUS_CAP_SPAWN;
    CHECK(janus_nursery_spawn_with(nursery, makes_none, NULL, &options) != NULL);
    STATUS(janus_nursery_cancel(nursery), JANUS_OK);
    CHECK(janus_nursery_await(nursery).status == JANUS_CANCELLED);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);

    /* As many as were granted, and a revoked one makes room. */
    janus_context two = reserve(1 * MS, 100 * MS), three = reserve(1 * MS, 100 * MS);
    CHECK(two != NULL && three != NULL && reserve(1 * MS, 100 * MS) == NULL);
    STATUS(janus_context_revoke(two), JANUS_OK);
    STATUS(janus_context_revoke(two), JANUS_REVOKED);
    STATUS(janus_context_get_info(two, &info), JANUS_REVOKED);
    STATUS(janus_context_bind(two), JANUS_REVOKED);
    STATUS(janus_context_wait(two, &notices, 0), JANUS_REVOKED);
    janus_context four = reserve(1 * MS, 100 * MS);
    CHECK(four != NULL);
    STATUS(janus_context_wait(four, &notices, 1 * MS), JANUS_TIMED_OUT);
    STATUS(janus_context_wait(four, NULL, 0), JANUS_INVALID_ARGUMENT);
    STATUS(janus_context_get_info(four, NULL), JANUS_INVALID_ARGUMENT);
    /* A handle that is given back takes the time along, also from a task that has it. */
    STATUS(janus_context_bind(four), JANUS_OK);
    STATUS(janus_context_destroy(four), JANUS_OK);
    STATUS(janus_task_context(&info), JANUS_WOULD_BLOCK);
    STATUS(janus_context_destroy(four), JANUS_STALE_HANDLE);
    STATUS(janus_context_unbind(four), JANUS_STALE_HANDLE);
    STATUS(janus_context_destroy(three), JANUS_OK);
    STATUS(janus_context_destroy(two), JANUS_OK);
    STATUS(janus_context_destroy(mine), JANUS_OK);
    return 0;
}

static void contexts(void) { CHECK(run_root(with_contexts(1), use_contexts, NULL) == 0); }

static int64_t bind_anothers(void *arg) {
    janus_context_notices notices;
    STATUS(janus_context_bind(arg), JANUS_INVALID_HANDLE);
    STATUS(janus_context_unbind(arg), JANUS_INVALID_HANDLE);
    STATUS(janus_context_wait(arg, &notices, 0), JANUS_INVALID_HANDLE);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    options.context = arg;
    CHECK(janus_nursery_spawn_with(nursery, spin_until_told, NULL, &options) == NULL);
    options.context = (janus_context)nursery;
    CHECK(janus_nursery_spawn_with(nursery, spin_until_told, NULL, &options) == NULL);
    options.context = NULL;
    options.quota = arg;
    CHECK(janus_nursery_spawn_with(nursery, spin_until_told, NULL, &options) == NULL);
    STATUS(janus_context_get_info((janus_context)nursery, NULL), JANUS_INVALID_HANDLE);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    CHECK(reserve(1 * MS, 10 * MS) == NULL);
    return 0;
}

static void *destroy_elsewhere(void *arg) {
    STATUS(janus_context_revoke(arg), JANUS_OK);
    STATUS(janus_context_destroy(arg), JANUS_OK);
    return NULL;
}

static void foreign_contexts(void) {
    janus_context_info info;
    janus_context_notices notices;
    /* Without a grant of the config there is no time. */
    janus_scheduler plain = started(1);
    CHECK(reserve(1 * MS, 10 * MS) == NULL);
    uint32_t weight = 1;
    janus_scheduler_config both = with_contexts(1);
    both.tenant_count = 1;
    both.tenant_weights = &weight;
    CHECK(janus_scheduler_create(both) == NULL);
    janus_scheduler scheduler = janus_scheduler_create(with_contexts(1));
    CHECK(scheduler != NULL);
    STATUS(janus_scheduler_enter(scheduler), JANUS_OK);
    janus_context ours = reserve(2 * MS, 10 * MS), theirs = reserve(1 * MS, 10 * MS);
    CHECK(ours != NULL && theirs != NULL);
    STATUS(janus_context_get_info(NULL, &info), JANUS_INVALID_HANDLE);
    STATUS(janus_context_get_info((janus_context)scheduler, &info), JANUS_INVALID_HANDLE);
    STATUS(janus_context_bind(ours), JANUS_NOT_A_TASK);
    STATUS(janus_context_unbind(ours), JANUS_NOT_A_TASK);
    STATUS(janus_context_wait(ours, &notices, 0), JANUS_NOT_A_TASK);
    STATUS(janus_task_context(&info), JANUS_NOT_A_TASK);
    STATUS(janus_context_take_notices(ours, &notices), JANUS_OK);
    STATUS(janus_context_adjust(ours, 3 * MS, 10 * MS), JANUS_OK);
    STATUS(janus_context_get_info(ours, &info), JANUS_OK);
    CHECK(info.budget_ns == 3 * MS);
    STATUS(janus_context_adjust(ours, 9 * MS, 10 * MS), JANUS_OVER_LIMIT);
    STATUS(janus_context_adjust(ours, 0, 10 * MS), JANUS_INVALID_ARGUMENT);
    /* Tasks of another scheduler do not get it, and any thread of the process can take it away. */
    int64_t result = -1;
    STATUS(janus_scheduler_run(plain, bind_anothers, ours, &result), JANUS_OK);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, destroy_elsewhere, theirs) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    STATUS(janus_context_get_info(theirs, &info), JANUS_STALE_HANDLE);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    STATUS(janus_context_get_info(ours, &info), JANUS_SHUT_DOWN);
    STATUS(janus_context_revoke(ours), JANUS_SHUT_DOWN);
    STATUS(janus_context_adjust(ours, 1 * MS, 10 * MS), JANUS_SHUT_DOWN);
    STATUS(janus_context_take_notices(ours, &notices), JANUS_SHUT_DOWN);
    STATUS(janus_context_destroy(ours), JANUS_OK);
    STATUS(janus_context_destroy(ours), JANUS_STALE_HANDLE);
    STATUS(janus_scheduler_shutdown(plain), JANUS_OK);
}

static int64_t charge_much(void *arg) {
    for (uint64_t i = 0; i < (uint64_t)(uintptr_t)arg; i++)
        if (janus_budget_charge(1000) != JANUS_OK) return -1;
    return (int64_t)(janus_task_now() / MS);
}

static int64_t share_quota(void *arg) {
    janus_rate rate = {0};
    rate.limit.ops = 6000;
    CHECK(janus_quota_create(&rate) == NULL); /* A task has what it was given. */
    janus_quota part = janus_quota_share(arg, &rate), more = janus_quota_share(arg, &rate);
    CHECK(part != NULL && more == NULL);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options options = {0};
    int64_t took = 0;
    options.quota = part;
    janus_task task = janus_nursery_spawn_with(nursery, charge_much, (void *)(uintptr_t)30, &options);
    CHECK(task != NULL);
    /* Its tasks keep it. */
    STATUS(janus_quota_destroy(part), JANUS_OK);
    STATUS(janus_task_join(task, &took), JANUS_OK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    return took;
}

static void quotas(void) {
    janus_scheduler_config config = with_caps(1);
    /* Time is virtual there, so that waiting is exact. */
    config.deterministic = JANUS_ORDER_SEEDED;
    janus_scheduler scheduler = janus_scheduler_create(config);
    CHECK(scheduler != NULL);
    STATUS(janus_scheduler_enter(scheduler), JANUS_OK);
    janus_rate rate = {0};
    CHECK(janus_quota_create(NULL) == NULL && janus_quota_create(&rate) == NULL);
    rate.period_ns = 10 * MS;
    rate.limit.ops = 10000;
    rate.when_empty = 9;
    CHECK(janus_quota_create(&rate) == NULL);
    rate.when_empty = JANUS_EMPTY_THROTTLE;
    janus_quota quota = janus_quota_create(&rate);
    CHECK(quota != NULL);
    int64_t took = 0;
    STATUS(janus_scheduler_run(scheduler, share_quota, quota, &took), JANUS_OK);
    /* 30,000 ops at 6,000 in every 10 ms, the first of them at once. */
    CHECK(took >= 35);
    janus_pool left = {0};
    uint64_t throttled = 0;
    STATUS(janus_quota_left(quota, &left, &throttled), JANUS_OK);
    CHECK(left.ops <= 10000);
    STATUS(janus_quota_left(NULL, &left, NULL), JANUS_INVALID_HANDLE);
    STATUS(janus_quota_left((janus_quota)scheduler, &left, NULL), JANUS_INVALID_HANDLE);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    STATUS(janus_quota_left(quota, NULL, NULL), JANUS_OK);
    STATUS(janus_quota_destroy(quota), JANUS_OK);
    STATUS(janus_quota_destroy(quota), JANUS_STALE_HANDLE);
}

/* ---- forks ---- */

struct inherited {
    janus_scheduler scheduler;
    janus_nursery nursery;
    janus_task task;
    janus_channel channel;
};

/* Nothing of the parent's can be used in a child, and nothing is waited for there. */
static void use_inherited(struct inherited *all) {
    uint64_t word = 0;
    int64_t result = 0;
    /* A call that waits is a child that does not end. */
    alarm(60);
    CHECK(janus_scheduler_create(janus_scheduler_config_default()) == NULL);
    CHECK(janus_nursery_create() == NULL);
    CHECK(janus_nursery_spawn(all->nursery, finish, NULL) == NULL);
    CHECK(janus_nursery_await(all->nursery).status == JANUS_FORKED);
    STATUS(janus_nursery_destroy(all->nursery), JANUS_FORKED);
    STATUS(janus_task_join(all->task, &result), JANUS_FORKED);
    STATUS(janus_channel_send(all->channel, 1, JANUS_FOREVER), JANUS_FORKED);
    STATUS(janus_channel_recv(all->channel, &word, JANUS_FOREVER), JANUS_FORKED);
    STATUS(janus_scheduler_run(all->scheduler, finish, NULL, NULL), JANUS_FORKED);
    STATUS(janus_scheduler_shutdown(all->scheduler), JANUS_FORKED);
    STATUS(janus_scheduler_yield(), JANUS_FORKED);
    STATUS(janus_budget_charge(1), JANUS_FORKED);
    STATUS(janus_scheduler_shutdown(NULL), JANUS_FORKED);
    CHECK(janus_budget_get_current().ops == 0);
    CHECK(strstr(janus_status_text(JANUS_FORKED), "forked") != NULL);
}

static void ended_well(pid_t child) {
    int how = -1;
    CHECK(child > 0 && waitpid(child, &how, 0) == child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static int64_t fork_in_task(void *arg) {
    pid_t child = fork();
    if (child == 0) {
        use_inherited(arg);
        _exit(0);
    }
    ended_well(child);
    return finish(NULL);
}

static void forks(void) {
    struct inherited all = {started(2), janus_nursery_create(), NULL, janus_channel_create(0)};
    all.task = janus_nursery_spawn(all.nursery, sleep_until_told, NULL);
    wait_until_begun(1);
    pid_t child = fork();
    if (child == 0) {
        use_inherited(&all);
        /* What ends with the thread has an open nursery. */
        exit(0);
    }
    ended_well(child);
    STATUS(janus_scheduler_run(all.scheduler, fork_in_task, &all, NULL), JANUS_OK);
    CHECK(finished == 1);
    /* For the parent nothing has changed. */
    STATUS(janus_nursery_cancel(all.nursery), JANUS_OK);
    CHECK(janus_nursery_await(all.nursery).status != JANUS_OK);
    CHECK(told == 1);
    STATUS(janus_nursery_destroy(all.nursery), JANUS_OK);
    STATUS(janus_channel_destroy(all.channel), JANUS_OK);
    STATUS(janus_scheduler_shutdown(all.scheduler), JANUS_OK);
}

/* ---- numbers that are too large ---- */

static const janus_budget MOST_BUDGET = {UINT32_MAX, SIZE_MAX, UINT16_MAX, UINT16_MAX, UINT16_MAX};
static const janus_pool MOST_POOL = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

static int64_t ask_for_too_much(void *arg) {
    uint64_t word;
    janus_nursery_options open = {0};
    janus_spawn_options child = {0};
    STATUS(janus_budget_charge_memory(SIZE_MAX), JANUS_MEMORY_BUDGET_EXHAUSTED);
    STATUS(janus_budget_recharge(MOST_BUDGET), JANUS_NOT_PERMITTED);
    open.has_pool = 1;
    open.pool = MOST_POOL;
    CHECK(janus_nursery_create_with(&open) == NULL);
    open = (janus_nursery_options){.deadline_ns = UINT64_MAX};
    janus_nursery nursery = janus_nursery_create_with(&open);
    CHECK(nursery != NULL);
    STATUS(janus_nursery_top_up(nursery, MOST_POOL), JANUS_POOL_EXHAUSTED);
    child.has_budget = 1;
    child.budget = MOST_BUDGET;
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &child) == NULL);
    child = (janus_spawn_options){.has_pool = 1, .pool = MOST_POOL};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &child) == NULL);
    child = (janus_spawn_options){.stack_size = SIZE_MAX};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &child) == NULL);
    child = (janus_spawn_options){.tenant = UINT32_MAX};
    CHECK(janus_nursery_spawn_with(nursery, finish, NULL, &child) == NULL);
    janus_task task = janus_nursery_spawn(nursery, wait_for_nobody, arg);
    STATUS(janus_task_recharge(task, MOST_BUDGET), JANUS_POOL_EXHAUSTED);
    /* As long as it takes, and longer than the clock can say. */
    STATUS(janus_channel_send(arg, 1, UINT64_MAX - 1), JANUS_OK);
    STATUS(janus_task_join(task, NULL), JANUS_OK);
    STATUS(janus_channel_recv(arg, &word, 0), JANUS_WOULD_BLOCK);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    begin();
    /* It never wakes by itself. */
    return janus_task_sleep(UINT64_MAX) == JANUS_CANCELLED ? 0 : -1;
}

static void too_large(void) {
    janus_scheduler_config config = janus_scheduler_config_default();
    config.stack_size = SIZE_MAX;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.worker_count = UINT32_MAX;
    CHECK(janus_scheduler_create(config) == NULL);
    config = janus_scheduler_config_default();
    config.worker_count = 2;
    config.root_pool = MOST_POOL;
    janus_scheduler scheduler = janus_scheduler_create(config);
    CHECK(scheduler != NULL);
    janus_channel channel = janus_channel_create(0);
    janus_nursery nursery = janus_nursery_create();
    janus_spawn_options some = {.has_pool = 1, .pool = {1000000, 1 << 20, 10, 100, 100}};
    CHECK(janus_nursery_spawn_with(nursery, ask_for_too_much, channel, &some) != NULL);
    wait_until_begun(1);
    STATUS(janus_nursery_cancel(nursery), JANUS_OK);
    int32_t status = janus_nursery_await(nursery).status;
    CHECK(status == JANUS_CANCELLED);
    STATUS(janus_nursery_destroy(nursery), JANUS_OK);
    janus_rate rate = {.period_ns = UINT64_MAX, .limit = MOST_POOL, .burst = MOST_POOL};
    CHECK(janus_quota_create(&rate) == NULL);
    rate.period_ns = 10 * MS;
    janus_quota quota = janus_quota_create(&rate);
    if (quota != NULL) STATUS(janus_quota_destroy(quota), JANUS_OK);
    janus_reservation asked = {.budget_ns = UINT64_MAX, .period_ns = UINT64_MAX, .deadline_ns = UINT64_MAX, .worker = JANUS_ANY_WORKER};
    CHECK(janus_context_create(&asked) == NULL);
    STATUS(janus_channel_destroy(channel), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    /* A scheduler whose config grants time. */
    scheduler = janus_scheduler_create(with_contexts(1));
    CHECK(janus_context_create(&asked) == NULL);
    asked = (janus_reservation){.budget_ns = 1, .period_ns = UINT64_MAX, .worker = UINT32_MAX - 1};
    CHECK(janus_context_create(&asked) == NULL);
    janus_context context = reserve(1 * MS, 100 * MS);
    CHECK(context != NULL);
    CHECK(janus_context_adjust(context, UINT64_MAX, UINT64_MAX) != JANUS_OK);
    CHECK(janus_context_adjust(context, 1, UINT64_MAX) != JANUS_OK);
    STATUS(janus_context_destroy(context), JANUS_OK);
    STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    config = with_contexts(1);
    config.context_count = UINT32_MAX;
    CHECK(janus_scheduler_create(config) == NULL);
    config = with_contexts(1);
    config.context_share_ppm = UINT32_MAX;
    scheduler = janus_scheduler_create(config);
    if (scheduler != NULL) STATUS(janus_scheduler_shutdown(scheduler), JANUS_OK);
    /* More tenants than there is room for weights. */
    config = with_caps(1);
    config.tenant_count = UINT32_MAX;
    uint32_t weights[2] = {1, UINT32_MAX};
    config.tenant_weights = weights;
    CHECK(janus_scheduler_create(config) == NULL);
    config.tenant_count = 2;
    CHECK(janus_scheduler_create(config) == NULL);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"lifecycle", lifecycle},
    {"no_workers", no_workers},
    {"spawn_and_yield", spawn_and_yield},
    {"deterministic", deterministic},
    {"deadlock", deadlock},
    {"shutdown_elsewhere", shutdown_elsewhere},
    {"four_functions", four_functions},
    {"first_error", first_error},
    {"no_orphans", no_orphans},
    {"thread_ends", thread_ends},
    {"innermost", innermost},
    {"deadline", deadline},
    {"results", results},
    {"budget_by_value", budget_by_value},
    {"self_recharge", self_recharge},
    {"parent_recharge", parent_recharge},
    {"exhausted", exhausted},
    {"ignored_end", ignored_end},
    {"capabilities", capabilities},
    {"bad_handles", bad_handles},
    {"foreign_threads", foreign_threads},
    {"cancel", cancel},
    {"channels", channels},
    {"tenants", tenants},
    {"endpoints", endpoints},
    {"contexts", contexts},
    {"foreign_contexts", foreign_contexts},
    {"quotas", quotas},
    {"forks", forks},
    {"too_large", too_large},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        if (argc < 2) {
            puts(CASES[i].name);
        } else if (strcmp(argv[1], CASES[i].name) == 0) {
            CASES[i].run();
            puts("ok");
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
