//! What goes from one task to another: a copy, with everything that it refers to.
//!
//! Conserved: nothing is shared but channels. The sender pays for the copy, as for an allocation; the receiver takes it
//! over.

use crate::ir::{Module, Type};
use mainspring::{Receiver, Sender};
use std::collections::{HashMap, TryReserveError};

/// Both sides of a channel.
#[derive(Clone, Debug)]
pub struct Channel {
    pub(super) sender: Sender<Parcel>,
    pub(super) receiver: Receiver<Parcel>,
}

/// A copy of values and of all that they refer to.
#[derive(Clone, Debug, Default)]
pub struct Parcel {
    pub(super) roots: Vec<u64>,
    /// Objects as in a heap: the length, and so many words. A reference is a place in here; zero is none.
    words: Vec<u64>,
    channels: Vec<Channel>,
}

/// The heap and the channels of a task. An object is its length and so many words; zero refers to the empty object.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) words: Vec<u64>,
    pub(super) channels: Vec<Channel>,
    /// Where the words were before there were more, if that is kept: generated code may still read lengths there, which never change.
    outgrown: Option<Vec<Vec<u64>>>,
}

impl Default for Heap {
    fn default() -> Self {
        Self { words: vec![0], channels: Vec::new(), outgrown: None }
    }
}

/// The type of an object's word.
fn inner<'a>(module: &'a Module, of: &'a Type, word: usize) -> &'a Type {
    match of {
        Type::Slice(of) => of,
        Type::Struct(at) => &module.structs[*at as usize].fields[word].1,
        _ => &Type::Unit,
    }
}

fn holds_references(module: &Module, of: &Type) -> bool {
    let one = |of: &Type| of.is_reference() || matches!(of, Type::Chan(_));
    match of {
        Type::Slice(of) => one(of),
        Type::Struct(at) => module.structs[*at as usize].fields.iter().any(|(_, of)| one(of)),
        _ => false,
    }
}

impl Heap {
    /// Keeps the places of the words that are given up from here on, or gives up those that were kept.
    pub(super) fn keep_outgrown(&mut self, keep: bool) {
        self.outgrown = keep.then(Vec::new);
    }

    /// Makes room for so many words more, if the host has it. What is kept is at most as much again as there is.
    fn make_room(&mut self, more: usize) -> Result<(), TryReserveError> {
        let wanted = self.words.len() + more;
        if wanted <= self.words.capacity() {
            return Ok(());
        }
        let Some(outgrown) = &mut self.outgrown else { return self.words.try_reserve(more) };
        let mut larger = Vec::new();
        larger.try_reserve_exact(wanted.max(self.words.capacity() * 2))?;
        larger.extend_from_slice(&self.words);
        outgrown.push(std::mem::replace(&mut self.words, larger));
        Ok(())
    }

    /// A new object of zeros. None if the host has no memory for it, whatever the budget has.
    pub(super) fn allocate(&mut self, len: usize) -> Option<u64> {
        self.make_room(len + 1).ok()?;
        let at = self.words.len();
        self.words.push(len as u64);
        self.words.resize(at + 1 + len, 0);
        Some(at as u64)
    }

    /// The length of an object.
    pub(super) fn len(&self, at: u64) -> u64 {
        self.words[at as usize]
    }

    /// Where a word of an object is, if it has that many.
    pub(super) fn place(&self, at: u64, index: u64) -> Option<usize> {
        (index < self.len(at)).then(|| at as usize + 1 + index as usize)
    }

    /// A place for a channel.
    pub(super) fn hold(&mut self, channel: Channel) -> u64 {
        self.channels.push(channel);
        self.channels.len() as u64
    }

    /// A channel, if the word stands for one.
    pub(super) fn channel(&self, word: u64) -> Option<Channel> {
        self.channels.get((word as usize).wrapping_sub(1)).cloned()
    }

    /// Copies values and what they refer to.
    pub(super) fn pack(&self, module: &Module, values: &[(u64, Type)]) -> Parcel {
        let mut parcel =
            Parcel { roots: Vec::with_capacity(values.len()), words: Vec::new(), channels: Vec::new() };
        let mut copied = HashMap::new();
        let mut todo = Vec::new();
        for (word, of) in values {
            let root = self.copy_word(&mut parcel, &mut copied, &mut todo, *word, of);
            parcel.roots.push(root);
        }
        while let Some((from, to, of)) = todo.pop() {
            let len = self.len(from) as usize;
            let start = from as usize + 1;
            if !holds_references(module, &of) {
                parcel.words[to..to + len].copy_from_slice(&self.words[start..start + len]);
                continue;
            }
            for word in 0..len {
                let of = inner(module, &of, word);
                let copy = self.copy_word(&mut parcel, &mut copied, &mut todo, self.words[start + word], of);
                parcel.words[to + word] = copy;
            }
        }
        parcel
    }

    /// A word of the copy. An object gets its place now and its words later.
    fn copy_word(
        &self,
        parcel: &mut Parcel,
        copied: &mut HashMap<u64, u64>,
        todo: &mut Vec<(u64, usize, Type)>,
        word: u64,
        of: &Type,
    ) -> u64 {
        match of {
            Type::Chan(_) => match self.channel(word) {
                Some(channel) => {
                    parcel.channels.push(channel);
                    parcel.channels.len() as u64
                }
                None => 0,
            },
            _ if !of.is_reference() || word == 0 => word,
            _ => *copied.entry(word).or_insert_with(|| {
                if parcel.words.is_empty() {
                    parcel.words.push(0);
                }
                let (at, len) = (parcel.words.len(), self.len(word));
                parcel.words.push(len);
                parcel.words.resize(at + 1 + len as usize, 0);
                todo.push((word, at + 1, of.clone()));
                at as u64
            }),
        }
    }

    /// Takes a parcel over: the words of its roots here.
    pub(super) fn unpack(&mut self, module: &Module, parcel: Parcel, types: &[Type]) -> Vec<u64> {
        let Parcel { roots, words, channels } = parcel;
        let (base, first) = (self.words.len(), self.channels.len());
        // The sender has paid. A receiver whose host has no memory panics.
        if let Err(error) = self.make_room(words.len()) {
            panic!("no memory for a message: {error}");
        }
        self.words.extend(words.iter().skip(1));
        self.channels.extend(channels);
        let moved = |word: u64, of: &Type| match of {
            Type::Chan(_) if word != 0 => word + first as u64,
            of if of.is_reference() && word != 0 => word - 1 + base as u64,
            _ => word,
        };
        let mut todo = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let roots: Vec<u64> = roots
            .into_iter()
            .zip(types)
            .map(|(word, of)| {
                let word = moved(word, of);
                todo.push((word, of));
                word
            })
            .collect();
        while let Some((at, of)) = todo.pop() {
            if !of.is_reference() || !holds_references(module, of) || at == 0 || !seen.insert(at) {
                continue;
            }
            for word in 0..self.len(at) as usize {
                let of = inner(module, of, word);
                let place = at as usize + 1 + word;
                self.words[place] = moved(self.words[place], of);
                todo.push((self.words[place], of));
            }
        }
        roots
    }
}

impl Parcel {
    /// The bytes that its objects take.
    pub(super) fn bytes(&self) -> usize {
        self.words.len().saturating_sub(1) * 8
    }
}
