/* A QEMU plugin that writes down the address of every instruction executed in a window of the run: from the `from`-th to
 * the `to`-th time that the instruction at `mark` is reached.
 *
 *     -plugin trace.so,mark=HEX,from=N,to=N,out=FILE
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of QEMU's plugin interface, version 1. */
typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
typedef void (*translated_fn)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*executed_fn)(unsigned, void *);
typedef void (*ended_fn)(qemu_plugin_id_t, void *);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translated_fn);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed_fn, enum qemu_plugin_cb_flags, void *);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, ended_fn, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

int qemu_plugin_version = 1;

static uint64_t mark, from, to, reached;
static bool inside;
static FILE *out;

static void executed(unsigned cpu, void *where)
{
    (void)cpu;
    uint64_t address = (uintptr_t)where;
    if (address == mark) {
        reached++;
        inside = reached >= from && reached < to;
    }
    if (inside)
        fprintf(out, "%" PRIx64 "\n", address);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        void *where = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, executed, QEMU_PLUGIN_CB_NO_REGS, where);
    }
}

static void ended(qemu_plugin_id_t id, void *nothing)
{
    (void)id;
    (void)nothing;
    fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "mark=", 5))
            mark = strtoull(argv[i] + 5, NULL, 16);
        else if (!strncmp(argv[i], "from=", 5))
            from = strtoull(argv[i] + 5, NULL, 10);
        else if (!strncmp(argv[i], "to=", 3))
            to = strtoull(argv[i] + 3, NULL, 10);
        else if (!strncmp(argv[i], "out=", 4))
            out = fopen(argv[i] + 4, "w");
    }
    if (!out)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
