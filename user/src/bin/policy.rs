//! The policy service: a program that sets how others are treated, within the bounds that boot has fixed.
//!
//! It follows rules, one to a line: those of the manifest, which come with it when it starts, and an operator's, which take their
//! place with a higher epoch.
//!
//! ```text
//! share NAME PERCENT     the program NAME gets so much of the CPUs that it could use, if it wants it
//! weight NAME WEIGHT     its threads have this weight
//! lease NAME CPU         its first thread has the CPU to itself
//! ```
//!
//! It looks at the accounts of all threads every 20 ms. A program that is to get a share and gets less has its weights raised, and
//! lowered again when it gets more than it needs. The kernel goes on without it: what it has set stands when it is gone.
//!
//! An operator speaks to it by `call:operator`: `reload EPOCH` and rules; `diagnose`; `stop`.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use mainspring_abi::kernel::{MAX_THREADS, ReceivedCall};
use mainspring_user::caps::{self, PolicyChange};
use mainspring_user::client;
use mainspring_user::say;
use mainspring_user::schema::{LatencyClass, ThreadState};

mainspring_user::program!(main);

const MS: u64 = 1_000_000;
/// How often it looks.
const PERIOD_NS: u64 = 20 * MS;
/// The bounds that it keeps to by itself; the kernel's are wider.
const WEIGHTS: (u64, u64) = (64, 4096);
const LEASE_NS: u64 = 500 * MS;
/// The weight of its own thread.
const OWN_WEIGHT: u64 = 1024;
/// Threads that it looks at.
const LOOKED_AT: u32 = 64;

#[derive(Clone, Debug)]
enum Rule {
    Share { name: String, percent: u64 },
    Weight { name: String, weight: u64 },
    Lease { name: String, cpu: u32 },
}

fn rules(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    for line in text.split([';', '\n']).map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.split_whitespace();
        let (what, name) = (words.next().unwrap_or(""), String::from(words.next().unwrap_or("")));
        let number = words.next().and_then(|word| word.parse::<u64>().ok());
        let Some(number) = number.filter(|_| !name.is_empty() && words.next().is_none()) else {
            return Err(format!("`{line}`: write share NAME PERCENT, weight NAME WEIGHT or lease NAME CPU"));
        };
        rules.push(match what {
            "share" if number <= 100 => Rule::Share { name, percent: number },
            "weight" => Rule::Weight { name, weight: number },
            "lease" => Rule::Lease { name, cpu: number as u32 },
            _ => return Err(format!("`{line}`: there is no such rule, or more than 100 percent")),
        });
    }
    Ok(rules)
}

/// What is known of a thread.
#[derive(Clone, Debug)]
struct Seen {
    slot: u32,
    process: u32,
    program: String,
    weight: u64,
    runtime_ns: u64,
    wants: bool,
}

/// All threads, one after the other.
fn threads() -> impl Iterator<Item = Seen> {
    let slots = 0..(MAX_THREADS as u32).min(LOOKED_AT);
    slots.filter_map(|slot| {
        if slot % 16 == 0 {
            // A look takes long where every request is checked.
            let _it_may_be_replaced = caps::policy_heartbeat();
        }
        let (process, wants, weight, runtime_ns) = caps::thread_info(slot, |info| {
            let wants = info.get_state() != Ok(ThreadState::Asleep);
            (info.get_process(), wants, u64::from(info.get_weight()), info.get_runtime_ns())
        })
        .ok()?;
        let program = caps::process_info(process, |info| {
            let name = info.get_name().ok().and_then(|name| name.to_str().ok());
            String::from(name.unwrap_or("?"))
        })
        .ok()?;
        Some(Seen { slot, process, program, weight, runtime_ns, wants })
    })
}

fn look() -> Vec<Seen> {
    threads().collect()
}

struct Service {
    rules: Vec<Rule>,
    epoch: u64,
    before: Vec<Seen>,
    looked_at: u64,
    retuned: u32,
    share: u64,
}

fn main() -> i64 {
    let rules = rules(caps::arguments()).expect("the manifest's rules can be read");
    let status = caps::policy_start().expect("it may be the policy service");
    say!("policy: in charge instance={} epoch={} rules={}", status.instance, status.epoch, rules.len());
    let mut service = Service {
        rules,
        epoch: status.epoch,
        before: Vec::new(),
        looked_at: caps::now(),
        retuned: 0,
        share: 0,
    };
    service.raise_itself();
    service.apply();
    let (operator, mut buffer) = (caps::need("serve:operator"), [0; 512]);
    let mut waiting = client::submit(caps::receive_request(operator, &mut buffer)).expect("there is room");
    loop {
        match client::wait_for(waiting, PERIOD_NS) {
            Ok(Some(Ok(_))) => {
                let head = ReceivedCall::from_bytes(buffer.first_chunk().expect("a call has a head"));
                let start = size_of::<ReceivedCall>();
                let message = buffer.get(start..start + head.len as usize).unwrap_or(&[]);
                let said = String::from(core::str::from_utf8(message).unwrap_or(""));
                let (answer, ends) = service.obey(&said);
                let answered = caps::return_request(operator, head.call_id, answer.as_bytes());
                let _the_operator_may_be_gone = client::carry_out(answered);
                if ends {
                    return 0;
                }
                waiting =
                    client::submit(caps::receive_request(operator, &mut buffer)).expect("there is room");
            }
            Ok(Some(Err(_))) | Err(_) => {
                say!("policy: the operator's endpoint is closed");
                return 1;
            }
            Ok(None) => service.retune(),
        }
        if caps::policy_heartbeat().is_err() {
            // Another instance is in charge: what it does is its own business.
            say!("policy: replaced");
            return 0;
        }
    }
}

impl Service {
    fn submit(&mut self, changes: &[PolicyChange]) -> bool {
        self.epoch += 1;
        caps::policy_submit(self.epoch, changes).is_ok()
    }

    /// It looks often and briefly: it is served soon, whatever else runs.
    fn raise_itself(&mut self) {
        let own = threads().find(|one| one.program == "policy" && one.wants);
        if let Some(own) = own {
            let change = PolicyChange::treat(own.slot, own.process, OWN_WEIGHT);
            self.submit(&[PolicyChange { class: LatencyClass::Interactive, ..change }]);
        }
    }

    /// Carries out the rules that need no account.
    fn apply(&mut self) {
        let seen = look();
        let mut changes = Vec::new();
        for rule in &self.rules {
            match rule {
                Rule::Weight { name, weight } => {
                    let of = seen.iter().filter(|one| one.program == *name);
                    changes.extend(of.map(|one| PolicyChange::treat(one.slot, one.process, *weight)));
                }
                Rule::Lease { name, cpu } => {
                    let of = seen.iter().find(|one| one.program == *name);
                    changes.extend(of.map(|one| PolicyChange::lease(one.process, *cpu, LEASE_NS)));
                }
                Rule::Share { .. } => {}
            }
        }
        for some in changes.chunks(8) {
            self.submit(some);
        }
    }

    /// Looks at the accounts, and changes the weights of programs that do not get what they are to get.
    fn retune(&mut self) {
        let (seen, now) = (look(), caps::now());
        let passed = (now - self.looked_at).max(1);
        let ran = |one: &Seen| {
            let before = self.before.iter().find(|old| old.slot == one.slot && old.process == one.process);
            before.map_or(0, |before| one.runtime_ns.saturating_sub(before.runtime_ns))
        };
        let mut changes = Vec::new();
        for rule in &self.rules {
            let Rule::Share { name, percent } = rule else { continue };
            let of: Vec<&Seen> = seen.iter().filter(|one| one.program == *name).collect();
            let share = of.iter().map(|one| ran(one)).sum::<u64>() * 100 / passed;
            self.share = share;
            let wanting = of.iter().any(|one| one.wants);
            for one in of {
                let weight = if share < *percent && wanting {
                    (one.weight * 2).min(WEIGHTS.1)
                } else if share > *percent * 3 / 2 {
                    (one.weight * 3 / 4).max(WEIGHTS.0)
                } else {
                    one.weight
                };
                if weight != one.weight {
                    changes.push(PolicyChange::treat(one.slot, one.process, weight));
                }
            }
        }
        (self.before, self.looked_at) = (seen, now);
        if !changes.is_empty() && self.submit(&changes[..changes.len().min(8)]) {
            self.retuned += 1;
        }
        let leases = self.rules.iter().any(|rule| matches!(rule, Rule::Lease { .. }));
        if leases && caps::policy_status().is_ok_and(|status| status.leased == 0) {
            self.apply();
        }
    }

    /// What the operator says; the answer, and whether the service ends.
    fn obey(&mut self, said: &str) -> (String, bool) {
        if let Some(rest) = said.strip_prefix("reload ") {
            let (epoch, text) = rest.split_once(' ').unwrap_or((rest, ""));
            let answer = match (epoch.parse::<u64>(), rules(text)) {
                (Ok(epoch), Ok(_)) if epoch <= self.epoch => {
                    format!("refused: epoch {epoch} is not above {}", self.epoch)
                }
                (Ok(epoch), Ok(rules)) => {
                    (self.rules, self.epoch) = (rules, epoch - 1);
                    self.apply();
                    format!("ok epoch={}", self.epoch)
                }
                (Err(_), _) => String::from("refused: write reload EPOCH RULES"),
                (_, Err(why)) => format!("refused: {why}"),
            };
            return (answer, false);
        }
        match said {
            "diagnose" => {
                let status = caps::policy_status();
                let (epoch, refused) = status.map_or((0, 0), |status| (status.epoch, status.refused));
                let (rules, retuned, share) = (self.rules.len(), self.retuned, self.share);
                (
                    format!("rules={rules} epoch={epoch} refused={refused} retuned={retuned} share={share}"),
                    false,
                )
            }
            "stop" => (String::from("ok"), true),
            "crash" => panic!("as the operator wished"),
            "hang" => loop {
                let _ = caps::sleep(1000 * MS);
            },
            _ => (String::from("write reload, diagnose or stop"), false),
        }
    }
}
