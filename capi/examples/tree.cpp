// A tree of tasks with nurseries as scopes. Exceptions stay inside of a task: `task` turns them into its error.
// c++ tree.cpp $(pkg-config --cflags --libs mainspring) -o tree
#include <mainspring.h>
#include <cstdio>
#include <stdexcept>
#include <utility>

// A nursery that ends with its block.
class Nursery {
    janus_nursery handle = janus_nursery_create();

  public:
    Nursery() = default;
    Nursery(const Nursery &) = delete;
    Nursery &operator=(const Nursery &) = delete;
    ~Nursery() { janus_nursery_destroy(handle); }
    janus_nursery_result await() { return janus_nursery_await(handle); }

    // `f` is used until the nursery has ended.
    template <typename F> bool spawn(F &f, janus_pool pool = {}) {
        janus_task_fn task = [](void *arg) -> int64_t {
            try {
                return (*static_cast<F *>(arg))();
            } catch (const std::exception &) {
                return -1;
            }
        };
        janus_spawn_options options = {};
        options.has_pool = pool.ops != 0;
        options.pool = pool;
        return janus_nursery_spawn_with(handle, task, &f, &options) != nullptr;
    }
};

// What a branch of this depth hands on: the pools of its two branches, and the default budget of each.
static janus_pool pool_of(int depth) {
    uint64_t tasks = (4ull << depth) - 2;
    return {tasks * 100000, tasks * (10ull << 20), tasks, tasks * 1000, tasks * 100};
}

static int64_t leaves(int depth) {
    if (depth == 0) return 1;
    int64_t sums[2] = {0, 0};
    auto branch = [&](int i) { return [&, i] { return sums[i] = leaves(depth - 1), int64_t(0); }; };
    auto left = branch(0), right = branch(1);
    Nursery nursery;
    janus_pool pool = pool_of(depth - 1);
    if (!nursery.spawn(left, pool) || !nursery.spawn(right, pool)) throw std::runtime_error("no spawn");
    if (nursery.await().status != JANUS_OK) throw std::runtime_error("a branch failed");
    return sums[0] + sums[1];
}

int main() {
    janus_scheduler scheduler = janus_scheduler_create(janus_scheduler_config_default());
    int64_t count = 0;
    auto root = [](void *) -> int64_t { return leaves(5); };
    int32_t status = janus_scheduler_run(scheduler, root, nullptr, &count);
    std::printf("%lld leaves: %s\n", static_cast<long long>(count), janus_status_text(status));
    auto throwing = [] { return throw std::runtime_error("inside a task"), int64_t(0); };
    {
        Nursery nursery;
        nursery.spawn(throwing);
        janus_nursery_result result = nursery.await();
        std::printf("an exception: %s, %lld\n", janus_status_text(result.status), static_cast<long long>(result.code));
    }
    return janus_scheduler_shutdown(scheduler);
}
