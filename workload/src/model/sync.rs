use mainspring_program::SyncKind;

/// Something that threads wait at for each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncSpec {
    /// The name, unique among those of its kind.
    pub name: String,
    /// What it is.
    pub kind: SyncKind,
}
