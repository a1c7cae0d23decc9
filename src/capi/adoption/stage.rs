use serde::Serialize;

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    /// Nothing was touched.
    Fresh,
    /// It can still be undone.
    Forward,
    /// It is being undone.
    Backward,
    /// The authority was switched; only the rest is left.
    Closing,
    /// There is nothing to do.
    Done,
}
