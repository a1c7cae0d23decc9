//! The owner of VMs, and the mark by which they carry it.

/// The owner of VMs: a control namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the namespace.
    pub namespace: String,
    /// Its UID, if the process may read it.
    pub uid: Option<String>,
}

impl Owner {
    /// The marker on the Machine's VMs: the UID, else the name. Both are valid label values in all clouds.
    pub fn marker(&self) -> &str {
        self.uid.as_deref().unwrap_or(&self.namespace)
    }

    /// A VM with this marker belongs to the Machine. The process may have been unable to read the UID when it
    /// created the VM, so the name is also accepted.
    pub fn has(&self, marker: &str) -> bool {
        self.uid.as_deref() == Some(marker) || self.namespace == marker
    }
}
