//! Tools that the provider and the stand-in share.

pub(in crate::capi) mod apply;
pub(in crate::capi) mod conditions;
pub(in crate::capi) mod gate;
pub(in crate::capi) mod hold;
pub(in crate::capi) mod observe;
pub(in crate::capi) mod reasons;
pub(in crate::capi) mod view;
