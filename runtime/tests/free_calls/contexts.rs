//! Scheduling contexts, sessions, leases and policy.

use crate::spin::{Table, ZERO};
use crate::tasks::without_authority;
use mainspring::policy::{Epoch, Manifest};
use mainspring::{CpuSet, Cx, Reservation, SchedulingContext, Weight};
use mainspring_abi::ThreadRef;
use std::time::Duration;

/// Those that need a runtime with contexts.
pub(crate) const CONTEXTS: Table = &[
    ("Cx::create_context", |cx, spin| spin.run(|| drop(small_context(cx)))),
    ("Cx::create_context", |cx, spin| {
        without_authority(cx, |cx| {
            let wish = Reservation::new(ZERO, ZERO);
            spin.run(|| assert!(cx.create_context(wish).is_err()));
        });
    }),
    ("Runtime::create_context", |_, spin| {
        let wish = Reservation::new(ZERO, ZERO);
        spin.run(|| assert!(spin.runtime.create_context(wish).is_err()));
    }),
    ("Cx::context", |cx, spin| spin.run(|| _ = cx.context())),
    ("SchedulingContext::bind", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.bind(cx));
    }),
    ("SchedulingContext::unbind", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| {
            context.bind(cx).unwrap();
            assert!(context.unbind(cx).unwrap());
        });
    }),
    ("SchedulingContext::info", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.info().unwrap());
    }),
    ("Runtime::policy_service", |_, spin| spin.run(|| _ = spin.runtime.policy_service(a_manifest()))),
    ("Runtime::now", |_, spin| spin.run(|| _ = spin.runtime.now())),
    ("Runtime::set_weight_of", |_, spin| {
        spin.run(|| assert!(!spin.runtime.set_weight_of(usize::MAX, Weight::DEFAULT)));
    }),
    ("PolicyService::start", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| _ = service.start());
    }),
    ("PolicyService::heard", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        service.start().unwrap();
        spin.run(|| service.heard().unwrap());
    }),
    ("PolicyService::treat", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        service.start().unwrap();
        let mut epoch = 0;
        spin.run(|| {
            epoch += 1;
            let _taken = service.treat(Epoch(epoch), &[]);
        });
    }),
    ("PolicyService::treatment", |_, spin| {
        let service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| assert!(service.treatment(0).is_none()));
    }),
    ("PolicyService::poll", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.poll());
    }),
    ("PolicyService::poll_in", |_, spin| {
        let service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| _ = service.poll_in());
    }),
    ("PolicyService::exited", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.exited());
    }),
    ("PolicyService::thread_ended", |_, spin| {
        let mut service = spin.runtime.policy_service(a_manifest()).unwrap();
        spin.run(|| service.thread_ended(0));
    }),
    ("Session::logout", |_, spin| {
        let session = spin.runtime.open_session().unwrap();
        spin.run(|| _ = session.logout());
    }),
    ("SchedulingContext::last_known", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.last_known().unwrap());
    }),
    ("SchedulingContext::adjust", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.adjust(spin.runtime, ZERO, ZERO));
    }),
    ("SchedulingContext::on_fault", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| context.on_fault(|_| {}));
    }),
    ("SchedulingContext::revoke", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.revoke());
    }),
    ("SchedulingContext::bind_to_tenant", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.bind_to_tenant(spin.runtime, 1));
    }),
    ("SchedulingContext::unbind_group", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.unbind_group().unwrap());
    }),
    ("Nursery::bind_context", |cx, spin| {
        let context = small_context(cx);
        cx.nursery(|n| spin.run(|| _ = n.bind_context(&context))).unwrap();
    }),
    ("SchedulingContext::notices", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.notices().unwrap());
    }),
    ("SchedulingContext::wait_notices", |cx, spin| {
        let context = small_context(cx);
        spin.run(|| _ = context.wait_notices(cx, Some(ZERO)).unwrap());
    }),
];

/// A context of which a task that spins uses little.
fn small_context(cx: &Cx) -> SchedulingContext {
    cx.create_context(Reservation::new(Duration::from_millis(1), Duration::from_millis(10))).unwrap()
}

/// Of a policy service that nobody recovers from.
fn a_manifest() -> Manifest {
    Manifest::new(CpuSet::first(1), ThreadRef::new(u32::MAX, 0))
}
