use super::{Drawn, ThreadTarget};

/// `[[interrupt]]`: a device that interrupts a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct InterruptSpec {
    /// The name.
    pub name: String,
    /// The CPU that it interrupts. Default 0.
    pub cpu: usize,
    /// From one burst to the next.
    pub every: Drawn,
    /// How many interrupts come at once. Default 1.
    pub burst: u32,
    /// What serving one of them takes. Default nothing.
    pub work: Drawn,
    /// Which threads it unparks, if any.
    pub wakes: Option<ThreadTarget>,
}
