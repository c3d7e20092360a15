//! Where in its file a workload says what: for a machine that cannot do something and has to name the line.

/// Lines of a file, from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The line of each step of each thread table.
    pub(crate) steps: Vec<Vec<usize>>,
    /// The line of each thread table.
    pub(crate) threads: Vec<usize>,
    /// The first table of each kind besides, by the name in its header.
    pub(crate) tables: Vec<(&'static str, usize)>,
}

impl Places {
    /// The line of a step, by the numbers of its thread table and of the step in its program.
    #[must_use]
    pub fn step(&self, thread: usize, step: usize) -> Option<usize> {
        self.steps.get(thread)?.get(step).copied()
    }

    /// The line on which a thread table begins.
    #[must_use]
    pub fn thread(&self, thread: usize) -> Option<usize> {
        self.threads.get(thread).copied()
    }

    /// The line of the first table of that name: `context`, `ring`, `network`.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().find(|(known, _)| *known == name).map(|(_, line)| *line)
    }
}
