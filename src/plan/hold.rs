/// Why an object may not be touched now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// What has to happen before; completes "waiting for".
    pub on: String,
    /// Whether the controller of the object confirms it with the condition `Paused`, because somebody waits for that.
    pub is_confirmed: bool,
    /// Whether the cluster of the object is paused and this process cares for it afterwards, too. Then a VM that may be in the
    /// making is still looked for.
    pub is_pause: bool,
    /// Whether the VM of the object is kept because its owner was removed by force. The object says so with the condition
    /// `Paused`, if [`Self::is_confirmed`].
    pub is_kept: bool,
}

impl From<String> for Hold {
    fn from(on: String) -> Self {
        Self { on, ..Self::default() }
    }
}
