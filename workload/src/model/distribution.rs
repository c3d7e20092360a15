use mainspring_program::Distribution;

/// `[[distribution]]`: durations that are not uniform.
#[derive(Clone, Debug, PartialEq)]
pub struct DistributionSpec {
    /// The name.
    pub name: String,
    /// What is drawn.
    pub kind: Distribution,
}
