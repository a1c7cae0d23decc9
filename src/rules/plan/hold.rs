/// Why an object may not be touched now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcileHold {
    /// The awaited event; completes "waiting for".
    pub on: String,
    /// The controller of the object confirms the hold with the condition `Paused`, because a client waits for
    /// it.
    pub is_confirmed: bool,
    /// The cluster of the object is paused and this process manages the object again afterwards. Then a VM that
    /// may be under creation is still looked up.
    pub is_pause: bool,
    /// The VM of the object is kept because its owner was removed by force. The condition `Paused` shows it, if
    /// [`Self::is_confirmed`].
    pub is_kept: bool,
}

impl From<String> for ReconcileHold {
    fn from(on: String) -> Self {
        Self { on, ..Self::default() }
    }
}
