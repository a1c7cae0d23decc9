/// Why an object may not be touched now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What has to happen before; completes "waiting for".
    pub on: String,
    /// Whether the controller of the object confirms it with the condition `Paused`, because somebody waits for that.
    pub is_confirmed: bool,
}

impl From<String> for Hold {
    fn from(on: String) -> Self {
        Self { on, is_confirmed: false }
    }
}
