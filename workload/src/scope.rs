//! Everything of a file that has a name, before any of it is read: so that tables may name each other in any order.

use crate::document::name_of;
use crate::error::{Report, Reported, clipped};
use crate::names::{NameError, Names, Noun, one_of, split_instance};
use crate::source::At;
use crate::tables::TableError;
use crate::thread::RawThread;
use crate::{ContextTarget, MAX_TABLES};
use std::collections::HashMap;
use toml::de::DeTable;

/// The tables of one kind, by name.
pub(crate) struct Named<'d> {
    what: Noun,
    pub tables: Vec<NamedTable<'d>>,
    index: HashMap<&'d str, usize>,
    /// Set when a name could not be read: any unknown name may be that one, and is not blamed.
    unreadable: Option<Reported>,
}

/// A table and its name.
pub(crate) struct NamedTable<'d> {
    pub name: Result<At<&'d str>, Reported>,
    pub table: At<&'d DeTable<'d>>,
}

impl<'d> Named<'d> {
    /// Gathers the names of the tables and reports those that stand for two.
    pub fn collect(
        what: Noun,
        tables: Result<Vec<At<&'d DeTable<'d>>>, Reported>,
        report: &mut Report<'_>,
    ) -> Self {
        let mut named = Self { what, tables: Vec::new(), index: HashMap::new(), unreadable: None };
        match tables {
            Err(reported) => named.unreadable = Some(reported),
            Ok(tables) => tables.into_iter().for_each(|table| named.add(table, report)),
        }
        named
    }

    fn add(&mut self, table: At<&'d DeTable<'d>>, report: &mut Report<'_>) {
        let n = self.tables.len();
        if n == MAX_TABLES {
            report.push(&table.at, TableError::TooMany { what: self.what });
        }
        let name = name_of(&table, self.what, report);
        match &name {
            Err(reported) => self.unreadable = Some(*reported),
            Ok(name) => {
                let first = *self.index.entry(name.value).or_insert(n);
                if first != n {
                    let line = self.line(first, report);
                    let error = NameError::Duplicate { what: self.what, name: clipped(name.value), line };
                    report.push(&name.at, error);
                }
            }
        }
        self.tables.push(NamedTable { name, table });
    }

    fn line(&self, n: usize, report: &Report<'_>) -> usize {
        let name = self.tables.get(n).and_then(|table| table.name.as_ref().ok());
        name.map_or(1, |name| report.source.line_of(name.at.start))
    }

    /// The number of the table of this name.
    pub fn find(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        match (self.index.get(name.value), self.unreadable) {
            (Some(&number), _) => Ok(number),
            (None, Some(reported)) => Err(reported),
            (None, None) => {
                let known = self.tables.iter().filter_map(|table| table.name.as_ref().ok());
                let suggestion = report.guess(name.value, known.map(|name| name.value));
                let error = NameError::Unknown { what: self.what, name: clipped(name.value), suggestion };
                Err(report.push(&name.at, error))
            }
        }
    }

    /// The names by number.
    pub fn names(&self) -> Result<Vec<String>, Reported> {
        let names = self.tables.iter().map(|table| table.name.as_ref().map(|name| name.value.into()));
        match self.unreadable {
            None => names.collect::<Result<_, _>>().map_err(|reported| *reported),
            Some(reported) => Err(reported),
        }
    }
}

/// The contexts of a file, and which thread table is bound to each.
pub(crate) struct Contexts<'d> {
    pub named: Named<'d>,
    /// By number of the context.
    users: Vec<Option<User>>,
}

/// The thread table that names a context.
#[derive(Clone, Copy)]
struct User {
    thread: usize,
    count: Result<Option<u32>, Reported>,
}

impl<'d> Contexts<'d> {
    /// Finds out which table is bound to what, and reports contexts that two tables ask for.
    pub fn collect(named: Named<'d>, threads: &[RawThread<'_>], report: &mut Report<'_>) -> Self {
        let mut contexts = Self { users: vec![None; named.tables.len()], named };
        for (n, thread) in threads.iter().enumerate() {
            let Ok(Some(name)) = &thread.context else { continue };
            let Ok(context) = contexts.named.find(name, report) else { continue };
            let count = match &thread.count {
                Ok(count) => Ok(count.as_ref().map(|count| count.value)),
                Err(reported) => Err(*reported),
            };
            match contexts.users.get_mut(context) {
                Some(user @ None) => *user = Some(User { thread: n, count }),
                Some(Some(first)) => {
                    let other = threads.get(first.thread).and_then(|thread| thread.name.as_ref().ok());
                    let other = other.map_or_else(String::new, |name| clipped(name.value));
                    report.push(&name.at, TableError::BoundTwice { context: clipped(name.value), other });
                }
                None => {}
            }
        }
        contexts.report_clashes(report);
        contexts
    }

    fn report_clashes(&self, report: &mut Report<'_>) {
        for name in self.named.tables.iter().filter_map(|table| table.name.as_ref().ok()) {
            let Some((table, instance)) = split_instance(name.value) else { continue };
            let Some(&number) = self.named.index.get(table) else { continue };
            if self.count(number).is_ok_and(|count| count.is_some_and(|count| instance < count)) {
                let line = self.named.line(number, report);
                let (name_text, table) = (clipped(name.value), clipped(table));
                let error = NameError::Clash { what: Noun::Context, name: name_text, table, line };
                report.push(&name.at, error);
            }
        }
    }

    /// How many instances a context has, if it has any but itself.
    pub fn count(&self, context: usize) -> Result<Option<u32>, Reported> {
        self.users.get(context).copied().flatten().map_or(Ok(None), |user| user.count)
    }

    /// The thread table that is bound to a context from the start.
    pub fn user(&self, context: usize) -> Option<usize> {
        self.users.get(context).copied().flatten().map(|user| user.thread)
    }

    /// The context or instance that a name stands for.
    pub fn target(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<ContextTarget, Reported> {
        let table = split_instance(name.value).and_then(|(table, instance)| {
            let number = self.named.index.get(table)?;
            Some((*number, instance))
        });
        match (self.named.index.get(name.value), table) {
            (None, Some((context, instance))) => {
                let count = self.count(context)?;
                if count.is_some_and(|count| instance < count) {
                    return Ok(ContextTarget { context, instance: Some(instance) });
                }
                let table = self.named.tables.get(context).and_then(|table| table.name.as_ref().ok());
                let table = table.map_or_else(String::new, |name| clipped(name.value));
                let name_text = clipped(name.value);
                let error = NameError::NoSuchInstance { what: Noun::Context, name: name_text, table, count };
                Err(report.push(&name.at, error))
            }
            _ => self.named.find(name, report).map(|context| ContextTarget { context, instance: None }),
        }
    }

    /// The one context that a name stands for.
    pub fn one(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<ContextTarget, Reported> {
        let target = self.target(name, report)?;
        match (target.instance, self.count(target.context)?) {
            (None, Some(count)) => {
                let instance = one_of(Noun::Context, name, count, report)?;
                Ok(ContextTarget { instance: Some(instance), ..target })
            }
            _ => Ok(target),
        }
    }

    /// The one context that a name stands for in the program of thread table `own`, each of whose instances may
    /// mean its own by the bare name.
    pub fn own(
        &self,
        own: usize,
        name: &At<&str>,
        report: &mut Report<'_>,
    ) -> Result<ContextTarget, Reported> {
        let target = self.target(name, report)?;
        if self.user(target.context) == Some(own) { Ok(target) } else { self.one(name, report) }
    }
}

/// All names of a file.
pub(crate) struct Scope<'t, 'd> {
    pub threads: Names<'t, 'd>,
    pub contexts: Contexts<'d>,
    pub sessions: Named<'d>,
    pub leases: Named<'d>,
    pub islands: Named<'d>,
    pub rings: Named<'d>,
    pub sync: Sync<'d>,
    pub distributions: Named<'d>,
}

impl Scope<'_, '_> {
    /// The distribution of this name. In a file without any, a word that is no duration is a mistake in one.
    pub fn distribution(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        if self.distributions.tables.is_empty() && self.distributions.unreadable.is_none() {
            crate::value::span_in(name, 0..name.value.len(), report)?;
        }
        self.distributions.find(name, report)
    }
}

/// What threads wait at. All of it is numbered together: mutexes first, then semaphores, barriers and conditions.
pub(crate) struct Sync<'d> {
    pub mutexes: Named<'d>,
    pub semaphores: Named<'d>,
    pub barriers: Named<'d>,
    pub conditions: Named<'d>,
}

impl Sync<'_> {
    pub fn mutex(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        self.mutexes.find(name, report)
    }

    pub fn semaphore(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        Ok(self.mutexes.tables.len() + self.semaphores.find(name, report)?)
    }

    pub fn barrier(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        let before = self.mutexes.tables.len() + self.semaphores.tables.len();
        Ok(before + self.barriers.find(name, report)?)
    }

    pub fn condition(&self, name: &At<&str>, report: &mut Report<'_>) -> Result<usize, Reported> {
        let before = self.mutexes.tables.len() + self.semaphores.tables.len() + self.barriers.tables.len();
        Ok(before + self.conditions.find(name, report)?)
    }
}
