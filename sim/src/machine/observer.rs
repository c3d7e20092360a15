//! Who looks on at the cores.

use mainspring_record::file::Recorder;
use mainspring_record::watch::Watch;
use std::hint::cold_path;

/// Fixed for a run, so that whoever takes the shortest way knows that nobody else has to be told.
pub(super) enum Observer<'a> {
    Nobody,
    /// A recorder alone, which takes a usual event in one piece.
    Recorder(Recorder<'a>),
    /// Somebody who is shown every event before it happens and every outcome after it, and perhaps a recorder.
    Watch(Box<dyn Watch + 'a>, Option<Recorder<'a>>),
}

impl<'a> Observer<'a> {
    pub(super) fn new(watch: Option<Box<dyn Watch + 'a>>, recorder: Option<Recorder<'a>>) -> Self {
        match (watch, recorder) {
            (Some(watch), recorder) => Self::Watch(watch, recorder),
            (None, Some(recorder)) => Self::Recorder(recorder),
            (None, None) => Self::Nobody,
        }
    }

    pub(super) fn recorder(&mut self) -> Option<&mut Recorder<'a>> {
        match self {
            Self::Recorder(recorder) | Self::Watch(_, Some(recorder)) => Some(recorder),
            Self::Nobody | Self::Watch(_, None) => None,
        }
    }

    /// Whether nobody has to be told in two halves: `record` has recorded it in one piece, or nobody looks on.
    #[inline(always)]
    pub(super) fn takes(&mut self, record: impl FnOnce(&mut Recorder<'a>) -> Option<()>) -> bool {
        match self {
            Self::Nobody => true,
            Self::Recorder(recorder) => record(recorder).is_some(),
            Self::Watch(..) => {
                cold_path();
                false
            }
        }
    }

    /// Both, to be told that the run is over.
    pub(super) fn part(self) -> (Option<Box<dyn Watch + 'a>>, Option<Recorder<'a>>) {
        match self {
            Self::Nobody => (None, None),
            Self::Recorder(recorder) => (None, Some(recorder)),
            Self::Watch(watch, recorder) => (Some(watch), recorder),
        }
    }
}
