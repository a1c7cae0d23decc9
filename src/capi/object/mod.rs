//! Tools that the provider and the stand-in share.

pub(crate) mod apply;
pub(crate) mod conditions;
pub(crate) mod gate;
pub(crate) mod hold;
pub(crate) mod in_place;
pub(crate) mod observe;
pub(crate) mod view;
