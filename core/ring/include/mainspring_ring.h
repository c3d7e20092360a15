/* Capability rings, ABI versions 1 and 2. Made from the Rust definitions in core/abi/src/ring; do not edit:
   MAINSPRING_BLESS=1 cargo test -p mainspring-ring --test c_header. All fields are little-endian. */
#ifndef MAINSPRING_RING_H
#define MAINSPRING_RING_H

#include <stddef.h>
#include <stdint.h>

#define CAP_RING_MAGIC 0x4752534du
#define CAP_RING_ABI_V1 0x1u
#define CAP_RING_ABI_V2 0x2u
#define CAP_NEED_WAKEUP 0x1u
#define CAP_CQ_HELD_BACK 0x2u
#define CAP_CQ_WAITING 0x1u
#define CAP_OP_NOP 0x0u
#define CAP_OP_CALL 0x1u
#define CAP_OP_RECV 0x2u
#define CAP_OP_RETURN 0x3u
#define CAP_OP_CANCEL 0x4u
#define CAP_OP_RETURN_RECV 0x5u
#define CAP_OP_THROW 0x6u
#define CAP_SQE_AFTER_PREVIOUS 0x1u
#define CAP_QOS_DROP_IF_LATE 0x1u
#define CAP_QOS_ALLOW_LATE 0x2u
#define CAP_QOS_PROPAGATE_DEADLINE 0x4u
#define CAP_QOS_NO_BLOCKING_PATH 0x8u
#define CAP_QOS_DEADLINE_ORDERED 0x10u
#define CAP_QOS_REORDERABLE 0x20u
#define CAP_ERR_UNSUPPORTED_RING_ABI 0x1u
#define CAP_ERR_UNSUPPORTED_SQE_VERSION 0x2u
#define CAP_ERR_DEADLINE_EXPIRED 0x3u
#define CAP_ERR_BUDGET_EXHAUSTED 0x4u
#define CAP_ERR_REALTIME_UNSAFE_PATH 0x5u
#define CAP_ERR_REALTIME_ADMISSION_DENIED 0x6u
#define CAP_ERR_OVERRUN 0x7u
#define CAP_ERR_STALE_INPUT 0x8u
#define CAP_ERR_STALE_SQ_CONSUMER 0x9u
#define CAP_ERR_BUSY 0xau
#define CAP_ERR_RING_CORRUPT 0xbu
#define CAP_ERR_INVALID_REQUEST 0xcu
#define CAP_ERR_DEPENDENCY_FAILED 0xdu
#define CAP_ERR_RING_CLOSED 0xeu
#define CAP_ERR_INVALID_CAPABILITY 0xfu
#define CAP_ERR_NO_SUCH_METHOD 0x10u
#define CAP_ERR_BAD_ADDRESS 0x11u
#define CAP_ERR_INVALID_PARAMETER 0x12u
#define CAP_ERR_QUOTA_EXCEEDED 0x13u
#define CAP_ERR_NO_MEMORY 0x14u
#define CAP_ERR_NOT_FOUND 0x15u
#define CAP_ERR_PEER_GONE 0x16u
#define CAP_ERR_TIMED_OUT 0x17u
#define CAP_ERR_OVERLOADED 0x18u
#define CAP_ERR_CANCELLED 0x19u
#define CAP_ERR_NOT_DIRECT 0x1au
#define CAP_ERR_DENIED 0x1bu
#define CAP_ERR_DONATION_REFUSED 0x1cu
#define CAP_ERR_BORROWED_TIME 0x1du
#define CAP_ERR_EXCEPTION 0x1eu
#define CAP_ERR_NOT_POLLED 0x1fu
#define CAP_STATUS_COMPLETED 0x0u
#define CAP_STATUS_COMPLETED_LATE 0x1u
#define CAP_STATUS_NOT_STARTED_LATE 0x2u
#define CAP_STATUS_DROPPED 0x3u
#define CAP_STATUS_THROTTLED 0x4u
#define CAP_STATUS_DEPENDENCY_CANCELLED 0x5u
#define CAP_STATUS_FAILED 0x6u

struct cap_sqe {
    uint64_t user_data;
    uint32_t cap_id;
    uint16_t op;
    uint16_t method_id;
    uint32_t flags;
    uint32_t call_id;
    uint64_t params_addr;
    uint32_t params_len;
    uint32_t result_len;
    uint64_t result_addr;
};
_Static_assert(sizeof(struct cap_sqe) == 48, "cap_sqe");
_Static_assert(offsetof(struct cap_sqe, user_data) == 0, "cap_sqe.user_data");
_Static_assert(offsetof(struct cap_sqe, cap_id) == 8, "cap_sqe.cap_id");
_Static_assert(offsetof(struct cap_sqe, op) == 12, "cap_sqe.op");
_Static_assert(offsetof(struct cap_sqe, method_id) == 14, "cap_sqe.method_id");
_Static_assert(offsetof(struct cap_sqe, flags) == 16, "cap_sqe.flags");
_Static_assert(offsetof(struct cap_sqe, call_id) == 20, "cap_sqe.call_id");
_Static_assert(offsetof(struct cap_sqe, params_addr) == 24, "cap_sqe.params_addr");
_Static_assert(offsetof(struct cap_sqe, params_len) == 32, "cap_sqe.params_len");
_Static_assert(offsetof(struct cap_sqe, result_len) == 36, "cap_sqe.result_len");
_Static_assert(offsetof(struct cap_sqe, result_addr) == 40, "cap_sqe.result_addr");

struct cap_sqe_v2 {
    struct cap_sqe v1;
    uint64_t deadline_ns;
    uint32_t qos_flags;
    uint32_t sched_ctx_id;
};
_Static_assert(sizeof(struct cap_sqe_v2) == 64, "cap_sqe_v2");
_Static_assert(offsetof(struct cap_sqe_v2, v1) == 0, "cap_sqe_v2.v1");
_Static_assert(offsetof(struct cap_sqe_v2, deadline_ns) == 48, "cap_sqe_v2.deadline_ns");
_Static_assert(offsetof(struct cap_sqe_v2, qos_flags) == 56, "cap_sqe_v2.qos_flags");
_Static_assert(offsetof(struct cap_sqe_v2, sched_ctx_id) == 60, "cap_sqe_v2.sched_ctx_id");

struct cap_cqe {
    uint64_t user_data;
    uint32_t result;
    uint16_t error;
    uint8_t status;
    uint8_t flags;
};
_Static_assert(sizeof(struct cap_cqe) == 16, "cap_cqe");
_Static_assert(offsetof(struct cap_cqe, user_data) == 0, "cap_cqe.user_data");
_Static_assert(offsetof(struct cap_cqe, result) == 8, "cap_cqe.result");
_Static_assert(offsetof(struct cap_cqe, error) == 12, "cap_cqe.error");
_Static_assert(offsetof(struct cap_cqe, status) == 14, "cap_cqe.status");
_Static_assert(offsetof(struct cap_cqe, flags) == 15, "cap_cqe.flags");

struct cap_ring_header {
    uint32_t magic;
    uint32_t abi_version;
    uint32_t entry_sizes;
    uint32_t sq_entries;
    uint32_t cq_entries;
    uint32_t reserved_setup[11];
    uint32_t sq_head;
    uint32_t reserved_sq_head[15];
    uint32_t flags;
    uint32_t held_back;
    uint32_t sq_wakes;
    uint32_t reserved_flags[13];
    uint32_t sq_tail;
    uint32_t reserved_sq_tail[15];
    uint32_t cq_head;
    uint32_t reserved_cq_head[15];
    uint32_t cq_tail;
    uint32_t reserved_cq_tail[15];
    uint32_t waiter_flags;
    uint32_t cq_wakes;
    uint32_t reserved_waiter[14];
    uint32_t reserved[16];
};
_Static_assert(sizeof(struct cap_ring_header) == 512, "cap_ring_header");
_Static_assert(offsetof(struct cap_ring_header, magic) == 0, "cap_ring_header.magic");
_Static_assert(offsetof(struct cap_ring_header, abi_version) == 4, "cap_ring_header.abi_version");
_Static_assert(offsetof(struct cap_ring_header, entry_sizes) == 8, "cap_ring_header.entry_sizes");
_Static_assert(offsetof(struct cap_ring_header, sq_entries) == 12, "cap_ring_header.sq_entries");
_Static_assert(offsetof(struct cap_ring_header, cq_entries) == 16, "cap_ring_header.cq_entries");
_Static_assert(offsetof(struct cap_ring_header, reserved_setup) == 20, "cap_ring_header.reserved_setup");
_Static_assert(offsetof(struct cap_ring_header, sq_head) == 64, "cap_ring_header.sq_head");
_Static_assert(offsetof(struct cap_ring_header, reserved_sq_head) == 68, "cap_ring_header.reserved_sq_head");
_Static_assert(offsetof(struct cap_ring_header, flags) == 128, "cap_ring_header.flags");
_Static_assert(offsetof(struct cap_ring_header, held_back) == 132, "cap_ring_header.held_back");
_Static_assert(offsetof(struct cap_ring_header, sq_wakes) == 136, "cap_ring_header.sq_wakes");
_Static_assert(offsetof(struct cap_ring_header, reserved_flags) == 140, "cap_ring_header.reserved_flags");
_Static_assert(offsetof(struct cap_ring_header, sq_tail) == 192, "cap_ring_header.sq_tail");
_Static_assert(offsetof(struct cap_ring_header, reserved_sq_tail) == 196, "cap_ring_header.reserved_sq_tail");
_Static_assert(offsetof(struct cap_ring_header, cq_head) == 256, "cap_ring_header.cq_head");
_Static_assert(offsetof(struct cap_ring_header, reserved_cq_head) == 260, "cap_ring_header.reserved_cq_head");
_Static_assert(offsetof(struct cap_ring_header, cq_tail) == 320, "cap_ring_header.cq_tail");
_Static_assert(offsetof(struct cap_ring_header, reserved_cq_tail) == 324, "cap_ring_header.reserved_cq_tail");
_Static_assert(offsetof(struct cap_ring_header, waiter_flags) == 384, "cap_ring_header.waiter_flags");
_Static_assert(offsetof(struct cap_ring_header, cq_wakes) == 388, "cap_ring_header.cq_wakes");
_Static_assert(offsetof(struct cap_ring_header, reserved_waiter) == 392, "cap_ring_header.reserved_waiter");
_Static_assert(offsetof(struct cap_ring_header, reserved) == 448, "cap_ring_header.reserved");

struct cap_runtime_boot_info {
    uint64_t ring_addr;
    uint32_t ring_abi_version;
    uint16_t sqe_size;
    uint16_t cqe_size;
};
_Static_assert(sizeof(struct cap_runtime_boot_info) == 16, "cap_runtime_boot_info");
_Static_assert(offsetof(struct cap_runtime_boot_info, ring_addr) == 0, "cap_runtime_boot_info.ring_addr");
_Static_assert(offsetof(struct cap_runtime_boot_info, ring_abi_version) == 8, "cap_runtime_boot_info.ring_abi_version");
_Static_assert(offsetof(struct cap_runtime_boot_info, sqe_size) == 12, "cap_runtime_boot_info.sqe_size");
_Static_assert(offsetof(struct cap_runtime_boot_info, cqe_size) == 14, "cap_runtime_boot_info.cqe_size");

#endif
