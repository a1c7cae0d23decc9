//! The driver of Azure.
