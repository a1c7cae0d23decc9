//! Other objects, as the caches have them.

use std::sync::Arc;

/// Another object, as the caches have it. Unknown and missing are different.
#[derive(Clone, Debug)]
pub(crate) enum ObjectView<K> {
    /// Unknown: it cannot be decoded, or the cache was never filled.
    Unknown,
    /// It does not exist, or nothing names it.
    Missing,
    /// It exists.
    Present(Arc<K>),
}

/// The owner of an infrastructure object, a Machine or a MachinePool.
#[derive(Clone, Debug)]
pub(crate) enum OwnerView<K> {
    /// No owner reference names one.
    None,
    /// One does.
    Named(ObjectView<K>),
}

/// The state of the owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerState {
    /// No owner reference names one.
    None,
    /// It cannot be read.
    Unreadable,
    /// It does not exist.
    Missing,
    /// It exists.
    Known,
}

impl<K> OwnerView<K> {
    /// The state of the owner.
    pub(crate) const fn ownership(&self) -> OwnerState {
        match self {
            Self::None => OwnerState::None,
            Self::Named(owner) => owner.ownership(),
        }
    }

    /// The owner, if it is known to exist.
    pub(crate) fn known(&self) -> Option<&Arc<K>> {
        match self {
            Self::None => None,
            Self::Named(owner) => owner.known(),
        }
    }
}

impl<K> ObjectView<K> {
    /// The state of the object, as an owner.
    pub(crate) const fn ownership(&self) -> OwnerState {
        match self {
            Self::Unknown => OwnerState::Unreadable,
            Self::Missing => OwnerState::Missing,
            Self::Present(_) => OwnerState::Known,
        }
    }

    /// The object, if it is known to exist.
    pub(crate) fn known(&self) -> Option<&Arc<K>> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unknown | Self::Missing => None,
        }
    }
}
