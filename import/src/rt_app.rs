//! The JSON of rt-app as a workload file.
//!
//! `run`, `runtime`, `sleep`, `timer`, `yield`, `suspend`, `resume`, `lock`, `unlock`, `wait`, `signal`, `broad`, `sync` and `barrier` are
//! events; a number behind the word makes it another key (`run1`), as in rt-app. Phases are written out as often as they loop. A
//! deadline thread gets a context, other priorities a weight. What else there is refuses the file by its key: nothing is left out silently.

use crate::error::ImportError;
use crate::workload::weight;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// How many steps one thread may come to when its loops are written out.
const MOST_STEPS: usize = 100_000;

/// A JSON value whose objects keep the order, and the repetition, of their keys.
#[derive(Clone, Debug, PartialEq)]
enum Json {
    Nothing,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = Json;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Json, E> {
                Ok(Json::Nothing)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
                Ok(Json::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
                Ok(Json::Number(value as f64))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
                Ok(Json::Number(value as f64))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
                Ok(Json::Number(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Json, E> {
                Ok(Json::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
                let mut all = Vec::new();
                while let Some(value) = list.next_element()? {
                    all.push(value);
                }
                Ok(Json::List(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Json::Object(all))
            }
        }
        deserializer.deserialize_any(Values)
    }
}

/// A value and the path to it.
#[derive(Clone)]
struct At<'a> {
    path: String,
    value: &'a Json,
}

impl<'a> At<'a> {
    fn wrong(&self, why: impl Into<String>) -> ImportError {
        ImportError::RtApp { key: self.path.clone(), why: why.into() }
    }

    fn entries(&self) -> Result<Vec<(&'a str, At<'a>)>, ImportError> {
        let Json::Object(entries) = self.value else {
            return Err(self.wrong("expected an object in braces"));
        };
        let path =
            |key: &str| if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Ok(entries.iter().map(|(key, value)| (&**key, At { path: path(key), value })).collect())
    }

    fn get(&self, key: &str) -> Result<Option<At<'a>>, ImportError> {
        Ok(self.entries()?.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value))
    }

    fn whole(&self) -> Result<i64, ImportError> {
        match self.value {
            Json::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => Ok(*number as i64),
            _ => Err(self.wrong("expected a whole number")),
        }
    }

    fn at_least(&self, least: i64) -> Result<i64, ImportError> {
        self.whole()?
            .ge(&least)
            .then_some(self.whole()?)
            .ok_or_else(|| self.wrong(format!("expected at least {least}")))
    }

    fn text(&self) -> Result<&'a str, ImportError> {
        match self.value {
            Json::Text(text) => Ok(text),
            _ => Err(self.wrong("expected a name in quotes")),
        }
    }
}

/// Comments as C writes them are blanks, so that lines stay where they are.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        match (c, rest.peek()) {
            ('/', Some('*')) => {
                rest.next();
                let mut star = false;
                for c in rest.by_ref() {
                    if c == '\n' {
                        out.push('\n');
                    }
                    if star && c == '/' {
                        break;
                    }
                    star = c == '*';
                }
                out.push(' ');
            }
            ('/', Some('/')) => {
                for c in rest.by_ref() {
                    if c == '\n' {
                        out.push('\n');
                        break;
                    }
                }
            }
            _ => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// What a file of rt-app describes, as a workload.
pub fn to_workload(bytes: &[u8], source: &str) -> Result<String, ImportError> {
    let text = without_comments(&String::from_utf8_lossy(bytes));
    let json: Json = serde_json::from_str(&text)
        .map_err(|error| ImportError::Json { line: error.line(), why: error.to_string() })?;
    let root = At { path: String::new(), value: &json };
    let tasks = root
        .get("tasks")?
        .ok_or_else(|| ImportError::RtApp { key: "tasks".into(), why: "is missing".into() })?;
    let mut global = Global { seconds: 1, policy: "SCHED_OTHER".to_owned() };
    if let Some(section) = root.get("global")? {
        if let Some(duration) = section.get("duration")? {
            // Less than nothing is for ever.
            global.seconds = if duration.whole()? < 0 { 1 } else { duration.whole()?.clamp(1, 3_600) };
        }
        if let Some(policy) = section.get("default_policy")? {
            global.policy = policy.text()?.to_owned();
        }
    }
    let mut cpus = 1;
    let mut body = String::new();
    let mut waited_at = WaitedAt::default();
    for (name, task) in tasks.entries()? {
        thread(name, &task, &global, &mut cpus, &mut waited_at, &mut body)?;
    }
    waited_at.tables(&mut body);
    let source: String = source.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Ok(format!(
        "# Made by `mainspring import` of {source}, a description for rt-app.\n[machine]\ncpus = {cpus}\nduration = \"{}s\"\n{body}",
        global.seconds
    ))
}

/// What threads wait at, by name, and how many threads come to each barrier.
#[derive(Default)]
struct WaitedAt {
    mutexes: BTreeSet<String>,
    conditions: BTreeSet<String>,
    barriers: BTreeMap<String, i64>,
}

impl WaitedAt {
    /// Notes what the steps of a table with so many instances use.
    fn note(&mut self, steps: &[String], instances: i64) {
        let mut own = BTreeSet::new();
        for step in steps {
            let words: Vec<&str> = step.split(' ').collect();
            match words[..] {
                ["lock" | "unlock", mutex] => drop(self.mutexes.insert(mutex.to_owned())),
                ["signal" | "broadcast", condition] => drop(self.conditions.insert(condition.to_owned())),
                ["wait", condition, mutex] => {
                    self.conditions.insert(condition.to_owned());
                    self.mutexes.insert(mutex.to_owned());
                }
                ["barrier", barrier] => drop(own.insert(barrier.to_owned())),
                _ => {}
            }
        }
        for barrier in own {
            *self.barriers.entry(barrier).or_default() += instances;
        }
    }

    fn tables(&self, out: &mut String) {
        for (kind, names) in [("mutex", &self.mutexes), ("condition", &self.conditions)] {
            for name in names {
                let _ = write!(out, "\n[[{kind}]]\nname = \"{name}\"\n");
            }
        }
        for (name, parties) in &self.barriers {
            let _ = write!(out, "\n[[barrier]]\nname = \"{name}\"\nparties = {parties}\n");
        }
    }
}

struct Global {
    seconds: i64,
    policy: String,
}

/// A name that a workload may have.
fn plain(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '-' }).collect();
    if plain.is_empty() { "thread".to_owned() } else { plain }
}

fn thread(
    name: &str,
    task: &At<'_>,
    global: &Global,
    cpus: &mut i64,
    waited_at: &mut WaitedAt,
    out: &mut String,
) -> Result<(), ImportError> {
    let name = plain(name);
    let mut head = format!("\n[[thread]]\nname = \"{name}\"\n");
    let (mut steps, mut instances) = (Vec::new(), 1);
    let (mut policy, mut priority, mut deadline, mut times) = (global.policy.clone(), None, [None; 3], None);
    let has_phases = task.get("phases")?.is_some();
    for (key, value) in task.entries()? {
        match key {
            "instance" | "num_instances" => {
                instances = value.at_least(1)?;
                if instances > 1 {
                    let _ = writeln!(head, "count = {}", value.whole()?);
                }
            }
            // Less than nothing is for ever.
            "loop" => times = if value.whole()? < 0 { None } else { Some(value.at_least(1)?) },
            "delay" => {
                let _ = writeln!(head, "start = \"{}us\"", value.at_least(0)?);
            }
            "policy" => policy = value.text()?.to_owned(),
            "priority" => priority = Some(value.whole()?),
            "dl-runtime" => deadline[0] = Some(value.at_least(1)?),
            "dl-period" => deadline[1] = Some(value.at_least(1)?),
            "dl-deadline" => deadline[2] = Some(value.at_least(1)?),
            "cpus" => {
                let Json::List(list) = value.value else {
                    return Err(value.wrong("expected a list of CPUs"));
                };
                let list: Result<Vec<i64>, _> =
                    list.iter().map(|cpu| At { path: value.path.clone(), value: cpu }.at_least(0)).collect();
                let list = list?;
                *cpus = list.iter().map(|cpu| cpu + 1).max().unwrap_or(1).max(*cpus);
                let _ = writeln!(head, "cpus = {list:?}");
            }
            "phases" => {
                for (_, phase) in value.entries()? {
                    events(&phase, &mut steps)?;
                }
            }
            _ if has_phases => return Err(value.wrong("a thread has events or phases, not both")),
            _ => event(key, &value, &mut steps)?,
        }
    }
    if let Some(times) = times {
        let _ = writeln!(head, "times = {times}");
    }
    match &*policy {
        "SCHED_OTHER" | "SCHED_BATCH" | "SCHED_IDLE" => {
            let nice = priority.unwrap_or(if policy == "SCHED_IDLE" { 19 } else { 0 });
            let nice = i32::try_from(nice).ok().filter(|nice| (-20..20).contains(nice));
            let nice = nice.ok_or_else(|| task.wrong("a nice value is from -20 to 19"))?;
            let _ = writeln!(head, "weight = {}", weight(120 + nice));
            if policy != "SCHED_OTHER" {
                head.push_str("latency = \"batch\"\n");
            }
        }
        "SCHED_FIFO" | "SCHED_RR" => head.push_str("weight = 65535\nlatency = \"interactive\"\n"),
        "SCHED_DEADLINE" => {
            let [runtime, period, due] = deadline;
            let period = period.or(due).ok_or_else(|| task.wrong("a deadline thread needs dl-period"))?;
            let runtime = runtime.ok_or_else(|| task.wrong("a deadline thread needs dl-runtime"))?;
            let due = due.unwrap_or(period);
            let _ = write!(
                out,
                "\n[[context]]\nname = \"{name}\"\nbudget = \"{runtime}us\"\nperiod = \"{period}us\"\ndeadline = \"{due}us\"\n"
            );
            let _ = writeln!(head, "context = \"{name}\"");
        }
        other => return Err(task.wrong(format!("the policy {other} is none of Linux's"))),
    }
    if steps.is_empty() {
        return Err(task.wrong("it has no events"));
    }
    waited_at.note(&steps, instances);
    let list: Vec<String> = steps.iter().map(|step| format!("\"{step}\"")).collect();
    let _ = writeln!(head, "program = [{}]", list.join(", "));
    out.push_str(&head);
    Ok(())
}

/// The events of a phase, as often as it loops.
fn events(phase: &At<'_>, steps: &mut Vec<String>) -> Result<(), ImportError> {
    let mut own = Vec::new();
    let mut times = 1;
    for (key, value) in phase.entries()? {
        match key {
            "loop" => times = value.at_least(1)?,
            "cpus" | "policy" | "priority" => {
                return Err(value.wrong("a thread keeps its CPUs and priority through all phases"));
            }
            _ => event(key, &value, &mut own)?,
        }
    }
    let total = usize::try_from(times).ok().and_then(|times| times.checked_mul(own.len()));
    if total.is_none_or(|total| total + steps.len() > MOST_STEPS) {
        return Err(phase.wrong(format!("its loops come to more than {MOST_STEPS} steps")));
    }
    (0..times).for_each(|_| steps.extend_from_slice(&own));
    Ok(())
}

fn event(key: &str, value: &At<'_>, steps: &mut Vec<String>) -> Result<(), ImportError> {
    let word = key.trim_end_matches(|last: char| last.is_ascii_digit());
    let name = || value.text().map(plain);
    let step = match word {
        "run" | "runtime" => format!("run {}us", value.at_least(1)?),
        "sleep" => format!("sleep {}us", value.at_least(1)?),
        "timer" => {
            let period = value.get("period")?.ok_or_else(|| value.wrong("needs a period"))?;
            format!("every {}us", period.at_least(1)?)
        }
        "yield" => "yield".to_owned(),
        "suspend" => "park".to_owned(),
        "resume" => format!("unpark {}", name()?),
        "lock" => format!("lock {}", name()?),
        "unlock" => format!("unlock {}", name()?),
        "barrier" => format!("barrier {}", name()?),
        "signal" => format!("signal {}", name()?),
        "broad" => format!("broadcast {}", name()?),
        "wait" => format!("wait {} {}", field(value, "ref")?, field(value, "mutex")?),
        "sync" => {
            let (condition, mutex) = (field(value, "ref")?, field(value, "mutex")?);
            steps.push(format!("signal {condition}"));
            format!("wait {condition} {mutex}")
        }
        _ => return Err(value.wrong(format!("the event {word:?} has no step"))),
    };
    steps.push(step);
    if steps.len() > MOST_STEPS {
        return Err(value.wrong(format!("more than {MOST_STEPS} steps")));
    }
    Ok(())
}

fn field(value: &At<'_>, key: &str) -> Result<String, ImportError> {
    let named = value.get(key)?.ok_or_else(|| value.wrong(format!("needs {key:?}")))?;
    named.text().map(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_order_and_phases_are_written_out() {
        let json = r#"{
            /* a comment */
            "tasks": {
                "t0": { "instance": 2, "priority": -5, "loop": -1, "run": 1000, "sleep": 2000, "run1": 3000, "timer": { "ref": "x", "period": 16000 } },
                "m": { "instance": 2, "lock": "x", "run": 5, "sync": { "ref": "c", "mutex": "x" }, "unlock": "x", "barrier": "b" },
                "t1": { "delay": 5, "phases": { "a": { "loop": 2, "run": 10 }, "b": { "sleep": 20 } } },
                "dl": { "policy": "SCHED_DEADLINE", "dl-runtime": 2000, "dl-period": 10000, "cpus": [0, 3], "run": 1500, "timer": { "ref": "u", "period": 10000 } }
            },
            "global": { "duration": 2 }
        }"#;
        let toml = to_workload(json.as_bytes(), "a.json").expect("a description");
        for part in [
            "cpus = 4\nduration = \"2s\"",
            "count = 2\nweight = 195\nprogram = [\"run 1000us\", \"sleep 2000us\", \"run 3000us\", \"every 16000us\"]",
            "start = \"5us\"\nweight = 64\nprogram = [\"run 10us\", \"run 10us\", \"sleep 20us\"]",
            "budget = \"2000us\"\nperiod = \"10000us\"\ndeadline = \"10000us\"",
            "cpus = [0, 3]\ncontext = \"dl\"",
            "[[mutex]]\nname = \"x\"\n\n[[condition]]\nname = \"c\"\n\n[[barrier]]\nname = \"b\"\nparties = 2\n",
        ] {
            assert!(toml.contains(part), "no {part:?} in:\n{toml}");
        }
        mainspring_workload::parse("a.toml", &toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    }

    #[test]
    fn what_cannot_be_said_is_refused_by_its_key() {
        let wrong = |tasks: &str| {
            to_workload(format!("{{\"tasks\": {{ {tasks} }} }}").as_bytes(), "a")
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(wrong(r#""t": { "iorun": 5 }"#), "tasks.t.iorun: the event \"iorun\" has no step");
        assert_eq!(wrong(r#""t": { "run": -5 }"#), "tasks.t.run: expected at least 1");
        assert_eq!(wrong(r#""t": { "run": 1.5 }"#), "tasks.t.run: expected a whole number");
        assert!(
            wrong(r#""t": { "phases": { "p": { "loop": 1000000, "run": 1 } } }"#).contains("100000 steps")
        );
        let error = to_workload(b"{\n\"tasks\": {\n,", "a").expect_err("no JSON");
        assert!(matches!(error, ImportError::Json { line: 3, .. }), "{error:?}");
    }
}
