use std::sync::Arc;

/// Another object, as the caches have it. Unknown and missing are different.
#[derive(Clone, Debug)]
pub(crate) enum View<K> {
    /// Unknown: it cannot be decoded, or the cache was never filled.
    Unknown,
    /// It does not exist, or nothing names it.
    Missing,
    /// It exists.
    Present(Arc<K>),
}

/// The owner of an infrastructure object, a Machine or a MachinePool.
#[derive(Clone, Debug)]
pub(crate) enum Owner<K> {
    /// No owner reference names one.
    None,
    /// One does.
    Named(View<K>),
}

impl<K> Owner<K> {
    /// The owner, if it is known to exist.
    pub(in crate::capi) fn known(&self) -> Option<&Arc<K>> {
        match self {
            Self::None => None,
            Self::Named(owner) => owner.known(),
        }
    }
}

impl<K> View<K> {
    /// The object, if it is known to exist.
    pub(in crate::capi) fn known(&self) -> Option<&Arc<K>> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unknown | Self::Missing => None,
        }
    }
}
