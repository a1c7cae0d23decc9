//! The driver of Equinix Metal.
