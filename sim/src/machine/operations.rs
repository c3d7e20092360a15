//! What an operator does, and what faults do to threads that depend on another thread.

use super::Machine;
use mainspring_abi::{ContextRef, ThreadRef};
use mainspring_driver::contexts::CallEnd;
use mainspring_sched::WaitKind;
use mainspring_workload::Operation;

impl Machine<'_> {
    /// Carries out the next timed operation.
    pub(super) fn operate(&mut self) {
        let operation = self.workload.operations[self.next_operation].operation;
        self.next_operation += 1;
        match operation {
            Operation::Revoke(target) => {
                for grant in self.grants.numbers.contexts(target) {
                    self.revoke_grant(grant, "operator");
                }
            }
            Operation::Adjust { context, budget, period } => {
                for grant in self.grants.numbers.contexts(context) {
                    self.adjust_if_it_holds(grant, budget, period);
                }
            }
            Operation::Logout(session) => {
                self.logout(session);
                self.end_leases_of_session(session);
            }
            Operation::Exit(target) => {
                for thread in self.targets(target) {
                    self.kill(thread);
                }
            }
            Operation::CloseEndpoint(endpoint) => self.close(endpoint),
            Operation::LeaveIsland(island) => self.leave_island(island, "left"),
            Operation::PolicyDies => self.kill_policy(),
            Operation::PolicyStalls => self.stall_policy(),
            Operation::PolicyWeight { thread, weight, epoch } => {
                self.policy_asks(thread, Some(weight), None, epoch);
            }
            Operation::PolicyProfile { thread, latency, epoch } => {
                self.policy_asks(thread, None, Some(latency), epoch);
            }
            Operation::RevokeLease(lease) => {
                self.revoke_lease(lease);
            }
        }
    }

    /// A context with the fault policy is used up. Its handler is told, if it has one; else its holder ends.
    pub(super) fn fault(&mut self, thread: usize, context: ContextRef) {
        let endpoint = self
            .grants
            .index(context)
            .and_then(|grant| self.workload.contexts[self.grants.list[grant].table].timeout_endpoint);
        match endpoint {
            None => self.kill(thread),
            Some(endpoint) => {
                if let Some(receiver) = self.endpoints[endpoint].receivers.pop_front()
                    && self.threads[receiver.thread as usize].is_waiting(receiver, WaitKind::Receive)
                {
                    self.wake_thread(receiver.thread as usize, None);
                }
            }
        }
    }

    /// Wakes the thread that waited to be told of a notice, if it is parked.
    pub(super) fn wake_if_parked(&mut self, waiter: ThreadRef) {
        let index = waiter.index() as usize;
        let parked = self.threads[index].wait == Some(WaitKind::Park) && !self.sync.is_waiting(index);
        if self.threads[index].identity == waiter && parked {
            self.wake_thread(index, None);
        }
    }

    /// A thread has ended: requests that it took are not answered any more.
    pub(super) fn fail_requests_of(&mut self, thread: usize) {
        for serving in std::mem::take(&mut self.threads[thread].serving).into_iter().rev() {
            self.end_call(None, &serving.request, CallEnd::ServerGone);
        }
    }
}
