/* A pipeline: one task makes numbers, four square them, and the main thread adds them up. A hostile fifth is stopped at its budget.
   cc pipeline.c $(pkg-config --cflags --libs mainspring) -o pipeline */
#include <mainspring.h>
#include <stdio.h>

struct pipe {
    janus_channel numbers, squares;
};

static int64_t make(void *arg) {
    struct pipe *pipe = arg;
    for (uint64_t i = 1; i <= 100; i++) {
        int32_t status = janus_channel_send(pipe->numbers, i, JANUS_FOREVER);
        if (status != JANUS_OK) return -status;
    }
    janus_channel_close(pipe->numbers);
    return 0;
}

static int64_t square(void *arg) {
    struct pipe *pipe = arg;
    uint64_t number;
    while (janus_channel_recv(pipe->numbers, &number, JANUS_FOREVER) == JANUS_OK) {
        int32_t status = janus_channel_send(pipe->squares, number * number, JANUS_FOREVER);
        if (status != JANUS_OK) return -status;
    }
    return 0;
}

static int64_t hostile(void *arg) {
    (void)arg;
    while (janus_budget_charge(1) == JANUS_OK) {}
    return 0;
}

int main(void) {
    janus_scheduler scheduler = janus_scheduler_create(janus_scheduler_config_default());
    if (scheduler == NULL) {
        char why[256];
        janus_error_text(why, sizeof why);
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    struct pipe pipe = {janus_channel_create(8), janus_channel_create(8)};
    janus_nursery nursery = janus_nursery_create();
    janus_nursery_spawn(nursery, make, &pipe);
    for (int i = 0; i < 4; i++) janus_nursery_spawn(nursery, square, &pipe);
    uint64_t sum = 0, one;
    for (int i = 0; i < 100; i++) {
        janus_channel_recv(pipe.squares, &one, JANUS_FOREVER);
        sum += one;
    }
    printf("sum %llu: %s\n", (unsigned long long)sum, janus_status_text(janus_nursery_await(nursery).status));
    janus_nursery_destroy(nursery);

    nursery = janus_nursery_create();
    janus_spawn_options options = {.has_budget = 1, .budget = {.ops = 100000}};
    janus_nursery_spawn_with(nursery, hostile, NULL, &options);
    janus_nursery_await(nursery);
    char how[256];
    janus_error_text(how, sizeof how);
    printf("the hostile task: %s\n", how);
    janus_nursery_destroy(nursery);
    janus_channel_destroy(pipe.numbers);
    janus_channel_destroy(pipe.squares);
    return janus_scheduler_shutdown(scheduler);
}
