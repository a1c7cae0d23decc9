use serde::Serialize;

/// The stage of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MigrationStage {
    /// Nothing was changed.
    Fresh,
    /// It can still be undone.
    Forward,
    /// It is being undone.
    Backward,
    /// The authority was switched; only the last steps remain.
    Closing,
    /// The migration is complete.
    Done,
}
